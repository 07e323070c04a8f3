"""The work queue for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Any

from typing_extensions import Unpack

from ._item import Item, RequeueAfter
from ._queue import Queue
from ._selection import Selected
from ._server import Server


class AsyncQueue:
    """A `Queue` whose handlers are coroutines. The stream itself is read by a thread: gRPC for asyncio may lose the reason for which
    a stream is refused while it is still written to."""

    def __init__(
        self,
        group: str,
        resource: str,
        handle: Callable[[Item], Awaitable[RequeueAfter | None]],
        *,
        workers: int = 1,
        synced: Callable[[], None] | None = None,
        server: Server | None = None,
        **selected: Unpack[Selected],
    ) -> None:
        """`workers` handlers run at once, as tasks; a thread waits for each. `synced` is called once, as by `Queue`, by the event
        loop."""
        self._handle = handle
        self._synced = synced
        self._asked: tuple[str, str, int, Server | None, Selected] = (group, resource, workers, server, selected)

    async def run(self) -> None:
        """Works until its task is cancelled, or an InformerdError. Then, and when the stream is lost, the handlers are cancelled: what
        is in hand goes to the other workers. It ends when all handlers have."""
        loop = asyncio.get_running_loop()
        handlers: set[asyncio.Task[Any]] = set()

        async def attend(item: Item) -> RequeueAfter | None:
            if item.lost:  # Before it came to this.
                raise asyncio.CancelledError
            handler = asyncio.current_task()
            assert handler
            handlers.add(handler)
            try:
                return await self._handle(item)
            finally:
                handlers.discard(handler)

        def handle(item: Item) -> RequeueAfter | None:
            return asyncio.run_coroutine_threadsafe(attend(item), loop).result()

        def cancel() -> None:
            for handler in handlers:
                handler.cancel()

        def synced() -> None:
            if self._synced:
                loop.call_soon_threadsafe(self._synced)

        def made() -> Queue:
            group, resource, workers, server, selected = self._asked
            return Queue(group, resource, handle, workers=workers, synced=synced, server=server, **selected)

        thread = concurrent.futures.ThreadPoolExecutor(1, "informerd-queue")
        try:
            queue = await loop.run_in_executor(thread, made)
            queue._lost = lambda: loop.call_soon_threadsafe(cancel)
            running = loop.run_in_executor(thread, queue.run)
            try:
                await asyncio.shield(running)
            finally:
                queue.close()
                await asyncio.wait([running])
        finally:
            thread.shutdown(wait=False)  # Waiting here would hold up the handlers.
