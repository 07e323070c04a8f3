"""The objects of a selection, and every change of them."""

from __future__ import annotations

import asyncio
import enum
import json
import threading
import weakref
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from typing_extensions import Self, Unpack

from ._retry import Retry, explain
from ._selection import Selected, selection
from ._server import Server, find
from ._silence import frames, heard
from .v1 import objects_pb2 as api
from .v1.objects_pb2_grpc import ObjectsStub


class Type(str, enum.Enum):
    """What has become of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    #: Comes once, when all objects that were there at first have been told. It is of no object.
    SYNCED = "SYNCED"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Key:
    """What tells objects apart."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Event:
    type: Type
    key: Key
    #: Of an object that was deleted, its last state.
    object: dict[str, Any]
    #: The object was deleted while the watch was interrupted: its last state is not known, and `object` has nothing but the
    #: metadata of `key`.
    final_state_unknown: bool = False


def watch(resource: str, server: Server | None = None, **selected: Unpack[Selected]) -> Watch:
    """Tells the objects of a selection as ADDED, SYNCED, and then every change, each once.

    It goes on when the connection is lost, informerd is restarted, or the way back is no longer known; what was deleted in
    between is told then. It ends when it is closed, or with an InformerdError.
    """
    return Watch(resource, server or find(), selected)


class Watch(Iterator[Event]):
    """An iterator, which any thread may close. It closes itself when nothing refers to it any more, and when the program ends."""

    def __init__(self, resource: str, server: Server, selected: Selected) -> None:
        self._streams = _Streams(resource, server, selected)
        self._events = self._streams.events()
        #: Held by the thread that waits for the next event.
        self._waits = threading.Lock()
        # A channel must be closed while the threads of gRPC still run: later, the interpreter would wait for them for ever.
        weakref.finalize(self, _close, self._streams, self._events, self._waits)

    def __next__(self) -> Event:
        with self._waits:
            return next(self._events)

    def close(self) -> None:
        """Ends the iteration."""
        _close(self._streams, self._events, self._waits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(streams: _Streams, events: Generator[Event, None, None], waits: threading.Lock) -> None:
    streams.close()
    # Otherwise the thread that waits for an event ends the generator.
    if waits.acquire(blocking=False):
        try:
            events.close()
        finally:
            waits.release()


class _Streams:
    """The streams of a watch, one after the other. It does not refer to the generator of its events. In a cycle, the garbage collector
    would close the generator, possibly in the thread of gRPC that the closing of a channel waits for."""

    def __init__(self, resource: str, server: Server, selected: Selected) -> None:
        self._server = server
        self._follower = _Follower(selection(resource, selected))
        self._retry = Retry(server.address, f"watch of {resource}", bool(server.token_file))
        self._closed = threading.Event()
        self._call: Any = None

    def close(self) -> None:
        self._closed.set()
        if self._call:
            self._call.cancel()

    def events(self) -> Generator[Event, None, None]:
        while not self._closed.is_set():
            self._retry.begins()
            try:
                with self._server.channel() as channel:
                    stub = ObjectsStub(channel)  # type: ignore[no-untyped-call]
                    self._call = stub.Watch(self._follower.request(), metadata=self._server.metadata())
                    try:
                        if self._closed.is_set():
                            return
                        for response in frames(self._call):
                            self._retry.alive()
                            yield from self._follower.frame(response)
                    finally:
                        self._call.cancel()
                wait = self._retry.after_goodbye(self._follower.wait)
            except (grpc.RpcError, OSError) as error:
                if self._closed.is_set():
                    return
                wait = 0 if self._follower.forgets(error) else self._retry.after_error(error)
            self._closed.wait(wait)


async def awatch(resource: str, server: Server | None = None, **selected: Unpack[Selected]) -> AsyncIterator[Event]:
    """`watch` for asyncio. It ends when its task is cancelled, or `aclose` is called."""
    follower = _Follower(selection(resource, selected))
    at = server if server else await asyncio.to_thread(lambda: find())
    retry = Retry(at.address, f"watch of {resource}", bool(at.token_file))
    while True:
        retry.begins()
        try:
            async with at.aio_channel() as channel:
                stub = ObjectsStub(channel)  # type: ignore[no-untyped-call]
                call = stub.Watch(follower.request(), metadata=at.metadata())
                try:
                    messages = aiter(call)
                    while (response := await heard(call, messages)) is not None:
                        retry.alive()
                        for event in follower.frame(response):
                            yield event
                finally:
                    call.cancel()
            wait = retry.after_goodbye(follower.wait)
        except (grpc.RpcError, OSError) as error:
            wait = 0 if follower.forgets(error) else retry.after_error(error)
        await asyncio.sleep(wait)


class _Follower:
    """What one consumer knows, without a wire."""

    def __init__(self, selection: api.Selection) -> None:
        self._selection = selection
        #: (namespace, name) -> what the consumer knows of the object: uid and revision.
        self._held: dict[tuple[str, str], tuple[str, str]] = {}
        self._synced = False
        #: What the snapshot had so far; None when none is under way.
        self._snapshot: set[tuple[str, str]] | None = None
        #: After the last frame that was worked through.
        self._token = b""
        #: What the last goodbye asks for.
        self.wait = 0.0

    def request(self) -> api.WatchRequest:
        self.wait = 0.0
        if self._token:
            return api.WatchRequest(selection=self._selection, resume_token=self._token)
        return api.WatchRequest(selection=self._selection)

    def forgets(self, error: Exception) -> bool:
        """Gives up the token if the error may be of the token, such as one of another cluster. A request that is wrong
        without one is wrong for good."""
        code, _, reason, _ = explain(error)
        if reason and self._token and code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE):
            self._token = b""
            return True
        return False

    def frame(self, response: api.WatchResponse) -> Iterator[Event]:
        frame = response.WhichOneof("frame")
        if frame == "reset" or frame == "started" and not response.started.resumed:
            self._snapshot = set()
        elif frame == "events":
            for event in response.events.events:
                yield from self._event(event)
        elif frame == "snapshot_end":
            yield from self._complete()
        elif frame == "goodbye":
            self.wait = response.goodbye.retry_after.ToMilliseconds() / 1000
        self._token = response.resume_token  # After the frame was worked through, not before.

    def _event(self, event: api.Event) -> Iterator[Event]:
        """What the consumer knows already is not told again: over a reconnect a frame may come twice, and a snapshot has
        everything."""
        name = (event.key.namespace, event.key.name)
        key = Key(*name, event.key.uid, event.key.resource_version)
        held = self._held.get(name)
        if event.type == api.Event.TYPE_DELETED:
            if held:
                del self._held[name]
                yield Event(Type.DELETED, key, json.loads(event.object))
            return
        if self._snapshot is not None:
            self._snapshot.add(name)
        if held and held[0] != key.uid:
            # It was deleted and made anew while nobody looked.
            yield self._gone(name)
            held = None
        if held and held[1] == key.resource_version:
            return
        self._held[name] = (key.uid, key.resource_version)
        yield Event(Type.MODIFIED if held else Type.ADDED, key, json.loads(event.object))

    def _complete(self) -> Iterator[Event]:
        """The snapshot is complete: what it had not is gone."""
        if self._snapshot is not None:
            for name in self._held.keys() - self._snapshot:
                yield self._gone(name)
        self._snapshot = None
        if not self._synced:
            self._synced = True
            yield Event(Type.SYNCED, Key(), {})

    def _gone(self, name: tuple[str, str]) -> Event:
        key = Key(*name, *self._held.pop(name))
        metadata = {"name": key.name, "uid": key.uid, "resourceVersion": key.resource_version}
        if key.namespace:
            metadata["namespace"] = key.namespace
        return Event(Type.DELETED, key, {"metadata": metadata}, final_state_unknown=True)
