from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

import grpc

from informerd import AsyncQueue, InformerdError, Item, Queue, RequeueAfter, _queue
from informerd.v1 import objects_pb2 as objects
from informerd.v1 import queue_pb2 as api

from .fake import Fake, pod, quiet, refused


def items(*names: str) -> api.WorkResponse:
    made = []
    for name in names:
        ref = api.ItemRef(namespace="n", name=name)
        made.append(api.Item(ref=ref, object=objects.Object(object=pod(name, name, "1")), attempt=2))
    return api.WorkResponse(items=api.Items(items=made))


class Answered:
    """Two streams in which every key is answered, and a third one that is refused for good."""

    def __init__(self, test: unittest.TestCase) -> None:
        self.test = test
        self.answers: list[Any] = []
        self.synced: list[int] = []
        refusal = refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_RESOURCE")
        self.server = Fake(test, self.first, self.second, refusal).server

    def first(self, requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
        joined(self.test, requests)
        yield api.WorkResponse(joined=api.Joined())
        for name in ("good", "bad", "later", "never", "before", "nan", "wrong"):
            yield items(name)
            self.answers.append(next(requests))
        yield api.WorkResponse(goodbye=objects.Goodbye())

    def second(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
        joined(self.test, requests)
        yield api.WorkResponse(synced=api.Synced())
        yield api.WorkResponse(synced=api.Synced())
        context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    def handle(self, item: Item) -> RequeueAfter | None:
        assert item.object and item.object["metadata"]["name"] == item.name and item.attempt == 2
        assert item.key == f"n/{item.name}" and item.deleted is None and not item.lost
        if item.name == "bad":
            raise ValueError("it failed")
        if item.name == "wrong":
            return True  # type: ignore[return-value]
        delays = {"later": 3600, "never": 1e300, "before": -1, "nan": float("nan")}
        return RequeueAfter(delays[item.name]) if item.name in delays else None

    def check(self, logged: list[str]) -> None:
        actions = ["done", "retry", "add_after", "add_after", "add_after", "retry", "retry"]
        self.test.assertEqual([answer.WhichOneof("action") for answer in self.answers], actions)
        delays = [answer.add_after.delay.seconds for answer in self.answers[2:5]]
        self.test.assertEqual(delays, [3600, 365 * 24 * 3600, 0])
        self.test.assertEqual(len(self.synced), 1)
        self.test.assertEqual(sum("it failed" in line for line in logged), 1)


def joined(test: unittest.TestCase, requests: Iterator[Any]) -> None:
    join = next(requests).join
    test.assertEqual((join.group, join.capacity, join.selections[0].resource.resource), ("g", 2, "pods"))


class Queues(unittest.TestCase):
    def test_each_key_is_answered_as_its_handler_says(self) -> None:
        told = Answered(self)
        queue = Queue(
            "g", "v1/pods", told.handle, workers=2, synced=lambda: told.synced.append(1), server=told.server
        )  # fmt: skip
        with self.assertLogs("informerd") as logged, self.assertRaisesRegex(InformerdError, "queue g of v1/pods"):
            queue.run()
        told.check(logged.output)

    def test_handlers_are_bounded_and_learn_that_their_stream_has_ended(self) -> None:
        quiet(self)
        busy = threading.Semaphore(0)
        running: list[int] = []

        def first(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            joined(self, requests)
            yield items("a", "b")
            busy.acquire()
            busy.acquire()
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

        def handle(item: Item) -> None:
            running.append(1)
            busy.release()
            while not item.lost:
                threading.Event().wait(0.01)
            running.pop()

        server = Fake(self, first, refused(grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN"))
        with self.assertRaises(InformerdError):
            Queue("g", "v1/pods", handle, workers=2, server=server.server).run()
        self.assertEqual(running, [])

    def test_a_worker_tells_for_which_handlers_it_waits(self) -> None:
        told = threading.Event()
        busy = threading.Event()

        def first(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            joined(self, requests)
            yield items("stuck")
            busy.wait()
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

        def handle(_: Item) -> None:
            busy.set()
            told.wait(30)

        server = Fake(self, first, refused(grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN"))
        queue = Queue("g", "v1/pods", handle, workers=2, server=server.server)
        with mock.patch.object(_queue, "_REMINDER", 0.1), self.assertLogs("informerd") as logged:
            threading.Timer(0.5, told.set).start()
            with self.assertRaises(InformerdError):
                queue.run()
        self.assertGreater(sum("waits for 1 handlers: n/stuck" in line for line in logged.output), 1)

    def test_any_thread_may_close_it(self) -> None:
        def held(requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            joined(self, requests)
            yield api.WorkResponse(joined=api.Joined())
            threading.Timer(0.1, queue.close).start()
            for _answer in requests:
                pass

        queue = Queue("g", "v1/pods", lambda _: None, workers=2, server=Fake(self, held).server)
        queue.run()


class AsyncQueues(unittest.IsolatedAsyncioTestCase):
    async def test_each_key_is_answered_as_its_handler_says(self) -> None:
        told = Answered(self)

        async def handle(item: Item) -> RequeueAfter | None:
            await asyncio.sleep(0)
            return told.handle(item)

        queue = AsyncQueue(
            "g", "v1/pods", handle, workers=2, synced=lambda: told.synced.append(1), server=told.server
        )  # fmt: skip
        with self.assertLogs("informerd") as logged, self.assertRaisesRegex(InformerdError, "queue g of v1/pods"):
            await queue.run()
        told.check(logged.output)

    async def test_handlers_run_at_once_and_are_cancelled_with_their_stream(self) -> None:
        quiet(self)
        busy = threading.Semaphore(0)
        ended: list[str] = []

        def first(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            joined(self, requests)
            yield items("a", "b")
            busy.acquire()
            busy.acquire()
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

        async def handle(item: Item) -> None:
            busy.release()
            try:
                await asyncio.Event().wait()
            finally:
                assert item.lost
                await asyncio.sleep(0)
                ended.append(item.name)

        server = Fake(self, first, refused(grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN"))
        with self.assertRaises(InformerdError):
            await AsyncQueue("g", "v1/pods", handle, workers=2, server=server.server).run()
        self.assertEqual(sorted(ended), ["a", "b"])

    async def test_it_ends_with_its_task_and_its_handlers(self) -> None:
        began = asyncio.Event()
        ended: list[str] = []

        def held(requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            joined(self, requests)
            yield items("a")
            for _answer in requests:
                pass

        async def handle(item: Item) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(item.name)

        task = asyncio.create_task(AsyncQueue("g", "v1/pods", handle, workers=2, server=Fake(self, held).server).run())
        await began.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(ended, ["a"])

    async def test_what_a_handler_has_cancelled_itself_is_a_failure(self) -> None:
        quiet(self)
        answers: list[Any] = []

        def first(requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            joined(self, requests)
            yield items("a")
            answers.append(next(requests))

        async def handle(_: Item) -> None:
            own = asyncio.create_task(asyncio.sleep(3600))
            own.cancel()
            await own

        server = Fake(self, first, refused(grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN"))
        with self.assertRaises(InformerdError):
            await AsyncQueue("g", "v1/pods", handle, workers=2, server=server.server).run()
        self.assertEqual([answer.WhichOneof("action") for answer in answers], ["retry"])
