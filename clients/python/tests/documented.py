"""What docs/clients.md shows. A test compares, and mypy checks the types."""

from collections.abc import Awaitable, Callable

import informerd


def queue(reconcile: Callable[[informerd.Item], None]) -> None:
    informerd.Queue("key-counter", "v1/configmaps", reconcile, workers=4).run()


async def asynchronously(reconcile: Callable[[informerd.Item], Awaitable[None]]) -> None:
    await informerd.AsyncQueue("key-counter", "v1/configmaps", reconcile, workers=4).run()  # async def reconcile(item)
