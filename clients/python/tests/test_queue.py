from __future__ import annotations

import threading
import unittest
from collections.abc import Iterator
from typing import Any

import grpc

from informerd import InformerdError, Item, Queue, RequeueAfter
from informerd.v1 import objects_pb2 as objects
from informerd.v1 import queue_pb2 as api

from .fake import Fake, pod, quiet, refused


def items(*names: str) -> api.WorkResponse:
    made = []
    for name in names:
        ref = api.ItemRef(namespace="n", name=name)
        made.append(api.Item(ref=ref, object=objects.Object(object=pod(name, name, "1")), attempt=2))
    return api.WorkResponse(items=api.Items(items=made))


class Queues(unittest.TestCase):
    def joined(self, requests: Iterator[Any]) -> None:
        join = next(requests).join
        self.assertEqual((join.group, join.capacity, join.selections[0].resource.resource), ("g", 2, "pods"))

    def test_each_key_is_answered_as_its_handler_says(self) -> None:
        answers = []
        synced = []

        def first(requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            self.joined(requests)
            yield api.WorkResponse(joined=api.Joined())
            for name in ("good", "bad", "later"):
                yield items(name)
                answers.append(next(requests))
            yield api.WorkResponse(goodbye=objects.Goodbye())

        def second(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            self.joined(requests)
            yield api.WorkResponse(synced=api.Synced())
            yield api.WorkResponse(synced=api.Synced())
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

        def handle(item: Item) -> RequeueAfter | None:
            assert item.object and item.object["metadata"]["name"] == item.name and item.attempt == 2
            assert item.key == f"n/{item.name}" and item.deleted is None and not item.lost
            if item.name == "bad":
                raise ValueError("it failed")
            return RequeueAfter(3600) if item.name == "later" else None

        server = Fake(self, first, second, refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_RESOURCE"))
        queue = Queue("g", "v1/pods", handle, workers=2, synced=lambda: synced.append(1), server=server.server)
        with self.assertLogs("informerd") as logged, self.assertRaisesRegex(InformerdError, "queue g of v1/pods"):
            queue.run()
        self.assertEqual([answer.WhichOneof("action") for answer in answers], ["done", "retry", "add_after"])
        self.assertEqual(answers[2].add_after.delay.seconds, 3600)
        self.assertEqual(len(synced), 1)
        self.assertEqual(sum("it failed" in line for line in logged.output), 1)

    def test_handlers_are_bounded_and_learn_that_their_stream_has_ended(self) -> None:
        quiet(self)
        busy = threading.Semaphore(0)
        running: list[int] = []

        def first(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            self.joined(requests)
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

    def test_any_thread_may_close_it(self) -> None:
        def held(requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[api.WorkResponse]:
            self.joined(requests)
            yield api.WorkResponse(joined=api.Joined())
            threading.Timer(0.1, queue.close).start()
            for _answer in requests:
                pass

        queue = Queue("g", "v1/pods", lambda _: None, workers=2, server=Fake(self, held).server)
        queue.run()
