"""Takes screenshots of the status page while the demo runs, light and dark."""

import base64
import json
import subprocess
import tempfile
import time
import urllib.request

ADMIN = "http://127.0.0.1:8002"
DEMO = ["demo", "--outage-after", "35s", "--outage", "12s"]
SECONDS = 80  # after the start of the demo; the outage is over then
WIDTH = 1120
SHOWN = "document.getElementById('plots').children[2].getBoundingClientRect().bottom + scrollY + 16"


class Browser:
    """A headless Chromium, spoken to over a pipe by the DevTools protocol."""

    def __init__(self, program, profile):
        # It speaks on the descriptors 3 and 4.
        shell = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                 "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self.child = subprocess.Popen(["sh", "-c", shell, program, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.last, self.session = 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method, **parameters):
        self.last += 1
        command = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        self.child.stdin.write(json.dumps(command).encode() + b"\0")
        self.child.stdin.flush()
        while True:
            message = b""
            while not message.endswith(b"\0"):
                read = self.child.stdout.read(1)
                if not read:
                    raise SystemExit("the browser has ended")
                message += read
            answer = json.loads(message[:-1])
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def evaluate(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def window(self, dark):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        self.ask("Emulation.setDeviceMetricsOverride", width=WIDTH, height=1000, deviceScaleFactor=1, mobile=False)

    def end(self):
        self.ask("Browser.close")
        self.child.wait()


def answers(path):
    try:
        with urllib.request.urlopen(ADMIN + path, timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


def make(program, browser, directory):
    demo = subprocess.Popen([program, *DEMO], stdout=subprocess.DEVNULL)
    try:
        begin = time.monotonic()
        while not answers("/readyz"):
            if demo.poll() is not None:
                raise SystemExit("the demo has ended")
            time.sleep(0.2)
        with tempfile.TemporaryDirectory(prefix="informerd-pictures.", ignore_cleanup_errors=True) as profile:
            page = Browser(browser, profile)
            page.window(dark=False)
            page.ask("Page.navigate", url=f"{ADMIN}/status")
            time.sleep(max(0, begin + SECONDS - time.monotonic()))
            for name, dark in [("light", False), ("dark", True)]:
                page.window(dark)
                time.sleep(3)  # until the page has drawn anew
                clip = {"x": 0, "y": 0, "width": WIDTH, "height": page.evaluate(SHOWN), "scale": 1}
                shot = page.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
                file = directory / f"status-{name}.png"
                file.write_bytes(base64.b64decode(shot["data"]))
                print(f"{file}: {file.stat().st_size // 1024} KiB")
            page.end()
    finally:
        demo.terminate()
        demo.wait()
