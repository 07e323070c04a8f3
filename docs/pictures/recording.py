"""Records a terminal session of the demo as an animated SVG."""

import fcntl
import html
import os
import pty
import struct
import subprocess
import termios
import time

import pyte

COLUMNS, ROWS = 80, 36
COMMAND = "informerd demo --outage-after 8s --outage 6s --for 22s"
EVERY = 0.8  # seconds between two frames
HOLD = 8  # seconds for which the last frame stays
WIDTH, HEIGHT = 8.4, 18  # of a character
PAD = 14
COLORS = {"red": "r", "green": "g"}

STYLE = """
    .window { fill: #0d1117; stroke: #30363d }
    text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6edf3 }
    .b { font-weight: 700 } .g { fill: #3fb950 } .r { fill: #ff7b72 } .p { fill: #79c0ff }
    .reel { animation: reel %(seconds)gs step-end infinite }
    @keyframes reel { %(steps)s }
    @media (prefers-reduced-motion: reduce) { .reel { animation: none; transform: translateY(%(last)gpx) } }
"""


def record(program):
    """What the terminal was sent: pairs of seconds since the start, and bytes."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    words = COMMAND.split()
    environment = {**os.environ, "TERM": "xterm-256color", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
    os.close(slave)
    begin, sent = time.monotonic(), []
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            break
        sent.append((time.monotonic() - begin, data))
    if child.wait() != 0:
        raise SystemExit(b"".join(data for _, data in sent).decode())
    return sent


def row(line):
    """A row of the terminal as runs of text of one style, each with its column."""
    runs = []
    for column in range(COLUMNS):
        char = line[column]
        style = " ".join(filter(None, ["b" if char.bold else "", COLORS.get(char.fg, "")]))
        if runs and runs[-1][1] == style:
            runs[-1][2] += char.data
        else:
            runs.append([column, style, char.data])
    return [(column, style, text.rstrip()) for column, style, text in runs if text.strip()]


def plain(runs):
    """The text of a row."""
    text = ""
    for column, _, part in runs:
        text = text.ljust(column) + part
    return text


def shown(text):
    """The text in SVG, where spaces that follow each other would become one."""
    return html.escape(text, quote=False).replace(" ", "\u00a0")


def frames(sent):
    """The screen now and then: pairs of seconds, and rows. Each row is a tuple of runs."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    typed = (0, "p", "$ "), (2, "b", COMMAND)
    made = [(0, (typed,))]
    stream.feed(f"$ {COMMAND}\r\n".encode())
    due = 1.0  # the command is seen alone for a moment

    def take(at):
        rows = [tuple(row(screen.buffer[y])) for y in range(ROWS)]
        if plain(rows[0]) == f"$ {COMMAND}":
            rows[0] = typed
        while rows and not rows[-1]:
            rows.pop()
        if tuple(rows) != made[-1][1]:
            made.append((at, tuple(rows)))

    for at, data in sent:
        while at + 1.0 > due:
            take(due)
            due += EVERY
        stream.feed(data)
    take(due)
    return made


def svg(made):
    """Frames lie below each other, and the window shows one after the other. Equal rows are written once."""
    height = ROWS * HEIGHT + 2 * PAD
    width = COLUMNS * WIDTH + 2 * PAD
    seconds = made[-1][0] + HOLD
    steps = " ".join(f"{100 * at / seconds:.2f}% {{ transform: translateY({-i * height:g}px) }}" for i, (at, _) in enumerate(made))
    known, uses = {}, []
    for i, (_, rows) in enumerate(made):
        for y, runs in enumerate(rows):
            if runs:
                name = known.setdefault(runs, f"r{len(known)}")
                uses.append(f'<use href="#{name}" y="{i * height + PAD + (y + 0.75) * HEIGHT:g}"/>')
    texts = []
    for runs, name in known.items():
        parts = []
        for column, style, text in runs:
            kind = f' class="{style}"' if style else ""
            length = f' textLength="{len(text) * WIDTH:g}"' if len(text) > 1 else ""
            parts.append(f'<text x="{PAD + column * WIDTH:g}"{length}{kind}>{shown(text)}</text>')
        texts.append(f'<g id="{name}">{"".join(parts)}</g>')
    told = "\n".join(map(plain, made[-1][1]))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="title desc">',
        f'<title id="title">A terminal session: {COMMAND}</title>',
        f'<desc id="desc">{html.escape(told, quote=False)}</desc>',
        "<style>" + STYLE % {"seconds": seconds, "steps": steps, "last": -(len(made) - 1) * height} + "</style>",
        "<defs>", *texts, "</defs>",
        f'<rect class="window" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>',
        f'<svg width="{width:g}" height="{height:g}"><g class="reel">', *uses, "</g></svg>",
        "</svg>", "",
    ])


def make(program, file):
    made = frames(record(program))
    file.write_text(svg(made))
    print(f"{file}: {len(made)} frames, {file.stat().st_size // 1024} KiB")
