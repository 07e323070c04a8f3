"""Reads the caches of informerd by gRPC: `watch` and `awatch` tell the changes of a selection, `Queue` and `AsyncQueue` hand its
keys to handlers. Each goes on by itself when the connection is lost or informerd is restarted, and ends with an
`InformerdError` when asking again cannot help.
"""

from ._async_queue import AsyncQueue
from ._item import Item, RequeueAfter
from ._queue import Queue
from ._retry import InformerdError
from ._selection import Selected
from ._server import Server, find
from ._watch import Event, Key, Type, Watch, awatch, watch

__all__ = [
    "AsyncQueue",
    "Event",
    "InformerdError",
    "Item",
    "Key",
    "Queue",
    "RequeueAfter",
    "Selected",
    "Server",
    "Type",
    "Watch",
    "awatch",
    "find",
    "watch",
]
