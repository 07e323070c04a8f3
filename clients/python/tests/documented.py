"""What docs/clients.md shows. A test compares, and mypy checks the types."""

from collections.abc import Callable

import informerd


def queue(reconcile: Callable[[informerd.Item], None]) -> None:
    informerd.Queue("key-counter", "v1/configmaps", reconcile, workers=4).run()
