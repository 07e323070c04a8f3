"""What is tried again, when, and what is told of it."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

log = logging.getLogger("informerd")

_FIRST_DELAY = 0.2
#: Also of what an error asks for: a client that is told to wait for longer would seem to hang.
_LONGEST_DELAY = 10.0
#: An outage is told of when it begins, this often while it lasts, and when it is over.
_REMINDER = 30.0

_PERMANENT = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
#: What this informerd is configured not to cache. The other reasons of FAILED_PRECONDITION pass.
_NOT_CACHED = ("EXCLUDED", "NOT_READABLE", "AGGREGATED", "OUT_OF_SCOPE", "UNSUPPORTED")


class InformerdError(Exception):
    """Asking again does not help against it, such as a misspelt resource."""

    def __init__(self, message: str, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(message)
        self.code = code
        #: Of informerd's ErrorInfo, such as UNKNOWN_RESOURCE.
        self.reason = reason


class Retry:
    """The errors of one watch or queue."""

    def __init__(self, address: str, what: str, refreshable: bool) -> None:
        self.what = what
        self._address = address
        self._refreshable = refreshable
        self._delay = _FIRST_DELAY
        self._began = 0.0
        self._outage = _outage(address)
        self._refused = Outage(address, what, "fails", "goes on")

    def begins(self) -> None:
        """A stream is about to be opened."""
        self._began = time.monotonic()

    def alive(self) -> None:
        """informerd has answered on it."""
        self._outage.over()
        self._refused.over()

    def after_goodbye(self, asked: float) -> float:
        """How long to wait before the next stream."""
        self._settle()
        return max(random.uniform(0, _FIRST_DELAY), min(asked, _LONGEST_DELAY))

    def after_error(self, error: Exception) -> float:
        """The same, or raises an InformerdError."""
        code, message, reason, asked = explain(error)
        if permanent(code, reason, self._refreshable):
            hint = ""
            if reason == "UNKNOWN_RESOURCE":
                hint = " (is it spelt as in `kubectl api-resources`: group, version, and the plural name in lower case?)"
            text = f"informerd at {self._address}, {self.what}: {code.name}: {message}{hint}"
            raise InformerdError(text, code, reason or "") from error
        self._settle()
        outage = self._refused if reason else self._outage
        outage.failed(f"{code.name}: {message}")
        # Clients that were cut off together do not come back together.
        wait = self._delay / 2 + random.uniform(0, self._delay)
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        return max(wait, min(asked, _LONGEST_DELAY))

    def _settle(self) -> None:
        if time.monotonic() - self._began > _LONGEST_DELAY:
            self._delay = _FIRST_DELAY  # It went well for a while.


def permanent(code: grpc.StatusCode, reason: str | None, refreshable: bool) -> bool:
    """Only what informerd itself has said can be: without its reason, an error is the library's or a proxy's word on the
    connection."""
    if reason is None:
        return False
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return not refreshable
    return code in _PERMANENT or code is grpc.StatusCode.FAILED_PRECONDITION and reason in _NOT_CACHED


def explain(error: Exception) -> tuple[grpc.StatusCode, str, str | None, float]:
    """Code, message, the reason of informerd's ErrorInfo, and the seconds of the RetryInfo."""
    if not isinstance(error, grpc.RpcError):
        return grpc.StatusCode.UNKNOWN, str(error), None, 0.0  # A file that cannot be read.
    call: Any = error
    reason, asked = None, 0.0
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in Status.FromString(value).details:
                info, retry = ErrorInfo(), RetryInfo()
                if detail.Unpack(info) and info.domain == "informerd.io":
                    reason = info.reason
                elif detail.Unpack(retry):
                    asked = retry.retry_delay.ToMilliseconds() / 1000
    return call.code(), call.details() or "", reason, asked


class Outage:
    """What is wrong for now, told of seldom."""

    def __init__(self, address: str, what: str, fails: str, recovers: str) -> None:
        self._what = f"{what} at {address}"
        self._fails = fails
        self._recovers = recovers
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = 0.0
        self._attempts = 0

    def failed(self, error: str) -> None:
        with self._lock:
            now = time.monotonic()
            self._attempts += 1
            if self._since is None:
                self._since = self._told = now
                log.warning("%s %s; trying again: %s", self._what, self._fails, error)
            elif now - self._told >= _REMINDER:
                self._told = now
                log.warning(
                    "%s still %s after %.0f s and %d attempts: %s",
                    self._what, self._fails, now - self._since, self._attempts, error,
                )  # fmt: skip

    def over(self) -> None:
        with self._lock:
            if self._since is not None:
                after = time.monotonic() - self._since
                log.warning("%s %s after %.1f s", self._what, self._recovers, after)
            self._since, self._attempts = None, 0


_outages: dict[str, Outage] = {}
_outages_lock = threading.Lock()


def _outage(address: str) -> Outage:
    """What all watches and queues of an address suffer from is told once."""
    with _outages_lock:
        return _outages.setdefault(address, Outage(address, "informerd", "does not answer", "answers again"))
