"""What a work queue hands to a handler, and what the handler's end means."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ._retry import log
from .v1 import queue_pb2 as api


_YEAR = 365 * 24 * 3600


@dataclass(frozen=True)
class Item:
    """A key with what is known of it."""

    namespace: str
    name: str
    #: The latest state; None if there is no such object, or it is no longer selected.
    object: dict[str, Any] | None
    #: The last state of the object that had this name before, if its deletion has not been handled yet. Together with
    #: `object`: it was deleted and made anew.
    deleted: dict[str, Any] | None
    #: 1, and one more for each failure since the key last succeeded.
    attempt: int
    _ended: threading.Event = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def lost(self) -> bool:
        """Whether informerd has given the key to another worker: a handler that takes long looks at it and gives up."""
        return self._ended.is_set()


@dataclass(frozen=True)
class RequeueAfter:
    """Returned by a handler that succeeded and wants the key again after some time, at most a year."""

    seconds: float


def decoded(item: api.Item, ended: threading.Event) -> Item:
    return Item(
        item.ref.namespace,
        item.ref.name,
        json.loads(item.object.object) if item.HasField("object") else None,
        json.loads(item.deleted.object) if item.HasField("deleted") else None,
        item.attempt,
        ended,
    )


def handled(item: api.Item, again: RequeueAfter | None) -> api.WorkRequest:
    if again:
        return api.WorkRequest(add_after=api.AddAfter(item=item.ref, delay=timedelta(seconds=min(max(again.seconds, 0), _YEAR))))
    return api.WorkRequest(done=item.ref)


def failed(item: api.Item, what: str, ended: threading.Event) -> api.WorkRequest:
    """Of the exception that is being handled."""
    if not ended.is_set():
        key = f"{item.ref.namespace}/{item.ref.name}"
        log.exception("%s: %s failed at attempt %d, and comes again", what, key, item.attempt)
    return api.WorkRequest(retry=item.ref)
