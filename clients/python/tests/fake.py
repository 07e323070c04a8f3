"""A server that answers each call by the next of its scripts. After the last one, it holds watches open, and repeats the last one for
workers: a client may lose the reason for which a stream is refused while it is still written to, and then asks again."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from informerd import Server
from informerd.v1 import objects_pb2 as api
from informerd.v1 import objects_pb2_grpc, queue_pb2_grpc

WatchScript = Callable[[api.WatchRequest, grpc.ServicerContext], Iterator[api.WatchResponse]]
WorkScript = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]


class Fake(objects_pb2_grpc.ObjectsServicer, queue_pb2_grpc.QueueServicer):
    def __init__(self, test: unittest.TestCase, *scripts: Any) -> None:
        self.scripts = list(scripts)
        self.closing = threading.Event()
        self.tokens: list[dict[str, str | bytes]] = []
        # A daemon thread of its own would outlive a test that failed.
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        objects_pb2_grpc.add_ObjectsServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        queue_pb2_grpc.add_QueueServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        server.add_insecure_port(f"unix:{directory.name}/s")
        self.server = Server(f"unix://{directory.name}/s")
        server.start()

        def stop() -> None:
            self.closing.set()
            server.stop(0).wait()

        test.addCleanup(stop)

    def Watch(self, request: api.WatchRequest, context: grpc.ServicerContext) -> Iterator[api.WatchResponse]:
        self.tokens.append(dict(context.invocation_metadata()))
        if self.scripts:
            yield from self.scripts.pop(0)(request, context)
        self.closing.wait(60)

    def Work(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        yield from script(requests, context)


def script(*frames: api.WatchResponse) -> WatchScript:
    return lambda request, context: iter(frames)


def broken(*frames: api.WatchResponse) -> WatchScript:
    def run(request: api.WatchRequest, context: grpc.ServicerContext) -> Iterator[api.WatchResponse]:
        yield from frames
        context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    return run


def refused(code: grpc.StatusCode, reason: str) -> WatchScript:
    def run(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if reason:
            detail = Packed()
            detail.Pack(ErrorInfo(domain="informerd.io", reason=reason))
            value: tuple[int, str] = code.value
            status = Status(code=value[0], message="no", details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, "no")
        yield

    return run


def started(resumed: bool = False) -> api.WatchResponse:
    return api.WatchResponse(started=api.Started(resumed=resumed, encoding=api.ENCODING_JSON))


def reset() -> api.WatchResponse:
    return api.WatchResponse(reset=api.Reset())


def snapshot_end() -> api.WatchResponse:
    return api.WatchResponse(resume_token=b"snapshot", snapshot_end=api.SnapshotEnd())


def events(token: str, *changes: str) -> api.WatchResponse:
    """ "+a1" "~a2" "-a3": what happened to object a at which revision; "+a1/x": of the uid x."""
    made = []
    for change in changes:
        change, _, uid = change.partition("/")
        kind = {"+": api.Event.TYPE_ADDED, "~": api.Event.TYPE_MODIFIED, "-": api.Event.TYPE_DELETED}[change[0]]
        key = api.Key(namespace="n", name=change[1], uid=uid or change[1], resource_version=change[2:])
        made.append(api.Event(type=kind, key=key, object=pod(key.name, key.uid, key.resource_version)))
    return api.WatchResponse(resume_token=token.encode(), events=api.Events(events=made))


def pod(name: str, uid: str, version: str) -> bytes:
    metadata = {"namespace": "n", "name": name, "uid": uid, "resourceVersion": version}
    return json.dumps({"metadata": metadata, "spec": {"nodeName": "node"}}).encode()


def quiet(test: unittest.TestCase) -> None:
    log = logging.getLogger("informerd")
    log.disabled = True
    test.addCleanup(setattr, log, "disabled", False)
