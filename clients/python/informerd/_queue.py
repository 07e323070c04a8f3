"""A controller's work queue, whose keys come from informerd."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc
from typing_extensions import Unpack

from ._item import Item, RequeueAfter, decoded, failed, handled
from ._retry import Retry, log
from ._selection import Selected, selection
from ._server import Server, find
from .v1 import queue_pb2 as api
from .v1.queue_pb2_grpc import QueueStub


#: How often a worker tells for which handlers it waits.
_REMINDER = 30.0


class Queue:
    """A worker of a group. All workers of a group, in however many processes, share one queue: each key is in one handler's
    hands at a time, and comes with the latest state of its object.

    The handler brings the cluster from the state that is to the state that should be. When it returns, the key is done until
    its object changes. When it raises an exception, the key comes again after a back-off that grows.
    """

    def __init__(
        self,
        group: str,
        resource: str,
        handle: Callable[[Item], RequeueAfter | None],
        *,
        workers: int = 1,
        synced: Callable[[], None] | None = None,
        server: Server | None = None,
        **selected: Unpack[Selected],
    ) -> None:
        """`workers` handlers run at once, in threads. `synced` is called once, when every object that was there has been put
        into the queue, though perhaps not been handled."""
        self._server = server or find()
        self._join = api.JoinGroup(group=group, selections=[selection(resource, selected)], capacity=workers)
        self._handle = handle
        self._synced = synced
        self._workers = workers
        self._retry = Retry(self._server.address, f"queue {group} of {resource}", bool(self._server.token_file))
        self._closed = threading.Event()
        self._call: Any = None
        #: Told that a stream has ended, and what was in hand with it.
        self._lost: Callable[[], object] = lambda: None

    def run(self) -> None:
        """Works until the queue is closed, or an InformerdError. It returns when all handlers have."""
        while not self._closed.is_set():
            self._retry.begins()
            try:
                wait = self._retry.after_goodbye(self._work())
            except (grpc.RpcError, OSError) as error:
                if self._closed.is_set():
                    return
                wait = self._retry.after_error(error)
            self._closed.wait(wait)

    def close(self) -> None:
        """Ends `run`; any thread may call it. What is in hand goes to the other workers."""
        self._closed.set()
        if self._call:
            self._call.cancel()

    def _work(self) -> float:
        """One stream: while it lives, this is a worker of its group. When it ends, what was in hand goes to the others."""
        requests: queue.SimpleQueue[api.WorkRequest | None] = queue.SimpleQueue()
        requests.put(api.WorkRequest(join=self._join))

        def work(item: api.Item) -> None:
            requests.put(self._answer(item, ended))

        ended = threading.Event()
        running: dict[concurrent.futures.Future[None], str] = {}
        with (
            concurrent.futures.ThreadPoolExecutor(self._workers, "informerd-queue") as pool,
            self._server.channel() as channel,
        ):
            # The iterator of the requests ends with the stream: a None is put into it.
            stub = QueueStub(channel)  # type: ignore[no-untyped-call]
            self._call = stub.Work(iter(requests.get, None), metadata=self._server.metadata())
            try:
                if self._closed.is_set():
                    return 0.0
                for response in self._call:
                    self._retry.alive()
                    if response.HasField("synced") and self._synced:
                        synced, self._synced = self._synced, None
                        synced()
                    for item in response.items.items:
                        handler = pool.submit(work, item)  # Never more than the capacity.
                        running[handler] = f"{item.ref.namespace}/{item.ref.name}"
                        handler.add_done_callback(running.pop)
                    if response.HasField("goodbye"):
                        return float(response.goodbye.retry_after.ToMilliseconds()) / 1000
            finally:
                ended.set()
                self._lost()
                requests.put(None)
                self._call.cancel()
                # One that does not look at `lost` holds up the worker.
                while concurrent.futures.wait(list(running), timeout=_REMINDER).not_done:
                    keys = ", ".join(list(running.values())[:10])
                    log.warning("%s: the stream is over, and waits for %d handlers: %s", self._retry.what, len(running), keys)
        return 0.0

    def _answer(self, item: api.Item, ended: threading.Event) -> api.WorkRequest:
        try:
            return handled(item, self._handle(decoded(item, ended)))
        except Exception:  # Whatever it is, the key comes again.
            return failed(item, self._retry.what, ended)
