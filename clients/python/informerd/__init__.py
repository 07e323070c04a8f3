"""Reads the caches of informerd by gRPC: `watch` and `awatch` tell the changes of a selection, a `Queue` hands its keys to
handlers. Each goes on by itself when the connection is lost or informerd is restarted, and ends with an `InformerdError`
when asking again cannot help.
"""

from ._queue import Item, Queue, RequeueAfter
from ._retry import InformerdError
from ._selection import Selected
from ._server import Server, find
from ._watch import Event, Key, Type, Watch, awatch, watch

__all__ = [
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
