"""Streams that say nothing for too long."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

#: Bookmarks come every minute: a stream that says nothing for so much longer is broken.
_LONGEST = 180.0
_EVERY = 10.0

#: Since when which call is waited for.
_waits: dict[Any, float] = {}
_lock = threading.Lock()
_watchdog: threading.Thread | None = None


def frames(call: Any) -> Iterator[Any]:
    """The messages of a call. It raises a TimeoutError when one is waited for in vain; a slow consumer is no silence."""
    _start()
    messages = iter(call)
    while True:
        _waits[call] = time.monotonic()
        try:
            message = next(messages)
        except StopIteration:
            return
        except grpc.RpcError as error:
            if call not in _waits:
                raise _broken() from error
            raise
        finally:
            _waits.pop(call, None)
        yield message


async def heard(call: Any, messages: AsyncIterator[Any]) -> Any:
    """The next message of a call of asyncio; None at its end."""
    silent = False

    def give_up() -> None:
        nonlocal silent
        silent = True
        call.cancel()

    timer = asyncio.get_running_loop().call_later(_LONGEST, give_up)
    try:
        return await anext(messages, None)
    except asyncio.CancelledError:
        if silent:
            raise _broken() from None
        raise
    finally:
        timer.cancel()


def look(now: float) -> None:
    """Ends the calls that were waited for in vain."""
    for call, since in list(_waits.items()):
        if now - since > _LONGEST and _waits.pop(call, 0.0):
            call.cancel()


def _broken() -> TimeoutError:
    return TimeoutError(f"nothing was heard for {_LONGEST:.0f} s")


def _start() -> None:
    """One thread looks after all calls: a timer for each frame would be a thread for each."""
    global _watchdog
    with _lock:
        if _watchdog is None or not _watchdog.is_alive():
            _watchdog = threading.Thread(target=_run, name="informerd-silence", daemon=True)
            _watchdog.start()


def _forked() -> None:
    """The calls are those of the process before, and its thread may have held the lock."""
    global _lock, _watchdog
    _lock, _watchdog = threading.Lock(), None
    _waits.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _run() -> None:
    while True:
        time.sleep(_EVERY)
        look(time.monotonic())
