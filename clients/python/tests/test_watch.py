from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from unittest import mock

import grpc

from informerd import Event, InformerdError, Selected, Type, _silence, awatch, watch
from informerd._selection import selection
from informerd.v1 import objects_pb2 as api

from .fake import Fake, broken, events, quiet, refused, reset, script, snapshot_end, started

GAP = [
    "ADDED n/a 1", "ADDED n/b 2", "ADDED n/c 3", "ADDED n/d 4", "SYNCED  ",
    "DELETED n/b 2?", "ADDED n/b 6", "ADDED n/f 5", "DELETED n/f 7", "MODIFIED n/d 8", "ADDED n/e 9", "DELETED n/a 1?",
    "DELETED n/e 10",
]  # fmt: skip
FIRST = (started(), events("1", "+a1", "+b2", "+c3", "+d4"), snapshot_end())
# a is gone, b was made anew, c is the same, d has changed, e is new, f came and went meanwhile.
THEN = (events("", "+b6/x", "+c3", "+f5"), events("", "-f7", "+d8", "+e9"), snapshot_end(), events("2", "-e10"))


def line(event: Event) -> str:
    if event.type is not Type.SYNCED:
        metadata = event.object["metadata"]
        assert metadata["name"] == event.key.name and metadata["uid"] == event.key.uid, event
        assert metadata["resourceVersion"] == event.key.resource_version, event
        assert ("spec" in event.object) != event.final_state_unknown, event
    return f"{event.type} {event.key} {event.key.resource_version}" + "?" * event.final_state_unknown


class Watches(unittest.TestCase):
    def told(self, server: Fake, count: int) -> list[str]:
        with watch("v1/pods", server.server) as found:
            return [line(event) for event in itertools.islice(found, count)]

    def test_goes_on_from_its_token_and_tells_nothing_twice(self) -> None:
        tokens = []

        def resumed(request: api.WatchRequest, _: grpc.ServicerContext) -> Iterator[api.WatchResponse]:
            tokens.append(request.resume_token)
            # The last frame may come a second time.
            yield from (started(True), events("2", "~a3"), events("3", "-b4", "+c5"))

        first = broken(started(), events("1", "+a1", "+b2"), snapshot_end(), events("2", "~a3"))
        server = Fake(self, first, broken(), broken(), resumed)  # One outage.
        with self.assertLogs("informerd") as logged:
            told = self.told(server, 6)
        self.assertEqual(
            told, ["ADDED n/a 1", "ADDED n/b 2", "SYNCED  ", "MODIFIED n/a 3", "DELETED n/b 4", "ADDED n/c 5"]
        )
        self.assertEqual(tokens, [b"2"])
        self.assertEqual(len(logged.output), 2, logged.output)
        self.assertIn(f"informerd at {server.server.address} does not answer", logged.output[0])
        self.assertIn("answers again", logged.output[1])

    def test_what_went_while_nobody_looked_is_told(self) -> None:
        quiet(self)
        over = Fake(self, broken(*FIRST), script(started(), *THEN))
        within = Fake(self, script(*FIRST, reset(), *THEN))
        for server in (over, within):
            self.assertEqual(self.told(server, len(GAP)), GAP)

    def test_a_snapshot_that_was_cut_is_continued(self) -> None:
        quiet(self)
        rest = script(started(True), events("whole", "+b2"), snapshot_end())
        server = Fake(self, broken(started(), events("half", "+a1")), rest)
        self.assertEqual(self.told(server, 3), ["ADDED n/a 1", "ADDED n/b 2", "SYNCED  "])

    def test_a_token_that_is_refused_is_given_up(self) -> None:
        quiet(self)

        def again(request: api.WatchRequest, context: grpc.ServicerContext) -> Iterator[api.WatchResponse]:
            if request.resume_token:
                yield from refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID")(request, context)
            yield from (started(), events("2", "+b5"), snapshot_end())

        server = Fake(
            self,
            broken(started(), events("1", "+a1"), snapshot_end()),
            refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
            again,
        )
        self.assertEqual(self.told(server, 4), ["ADDED n/a 1", "SYNCED  ", "ADDED n/b 5", "DELETED n/a 1?"])

    def test_a_stream_that_fell_silent_is_given_up(self) -> None:
        quiet(self)
        held = threading.Event()
        self.addCleanup(held.set)

        def silent(_: api.WatchRequest, context: grpc.ServicerContext) -> Iterator[api.WatchResponse]:
            yield from (started(), events("1", "+a1"), snapshot_end())
            held.wait(60)

        then = (started(True), events("2", "+b2"))
        with watch("v1/pods", Fake(self, silent, script(*then)).server) as found:
            self.assertEqual([line(next(found)) for _ in range(2)], ["ADDED n/a 1", "SYNCED  "])
            _silence.look(time.monotonic() + 200)  # Nothing is waited for.
            timer = threading.Timer(0.5, lambda: _silence.look(time.monotonic() + 200))
            timer.start()
            self.assertEqual(line(next(found)), "ADDED n/b 2")

        async def told() -> str:
            async with contextlib.aclosing(awatch("v1/pods", Fake(self, silent, script(*then)).server)) as found:  # type: ignore[type-var]
                return [line(await anext(found)) for _ in range(3)][-1]

        with mock.patch.object(_silence, "_LONGEST", 0.5):
            self.assertEqual(asyncio.run(told()), "ADDED n/b 2")

    def test_what_cannot_succeed_ends_it(self) -> None:
        quiet(self)
        code = grpc.StatusCode
        for status, reason, final in (
            (code.NOT_FOUND, "UNKNOWN_RESOURCE", True),
            (code.INVALID_ARGUMENT, "INVALID", True),
            (code.PERMISSION_DENIED, "FORBIDDEN", True),
            (code.UNAUTHENTICATED, "UNAUTHENTICATED", True),
            (code.FAILED_PRECONDITION, "EXCLUDED", True),
            (code.FAILED_PRECONDITION, "STALE", False),
            (code.UNAVAILABLE, "NOT_SYNCED", False),
            (code.INTERNAL, "INTERNAL", False),
            # Not informerd's word.
            (code.NOT_FOUND, "", False),
            (code.UNIMPLEMENTED, "", False),
        ):
            with self.subTest(status=status, reason=reason):
                server = Fake(self, refused(status, reason), script(started(), snapshot_end()))
                if not final:
                    self.assertEqual(self.told(server, 1), ["SYNCED  "])
                    continue
                with self.assertRaises(InformerdError) as raised:
                    self.told(server, 1)
                self.assertEqual((raised.exception.code, raised.exception.reason), (status, reason))
                text = str(raised.exception)
                self.assertIn(f"informerd at {server.server.address}, watch of v1/pods: {status.name}: no", text)
                self.assertEqual("kubectl api-resources" in text, reason == "UNKNOWN_RESOURCE")

    def test_any_thread_may_close_it(self) -> None:
        server = Fake(self, script(started(), events("1", "+a1"), snapshot_end()))
        found = watch("v1/pods", server.server)
        self.assertEqual([next(found).type, next(found).type], [Type.ADDED, Type.SYNCED])
        threading.Timer(0.1, found.close).start()
        self.assertEqual(list(found), [])

    def test_one_that_nobody_refers_to_is_closed_without_the_garbage_collector(self) -> None:
        ended = threading.Event()

        def held(_: api.WatchRequest, context: grpc.ServicerContext) -> Iterator[api.WatchResponse]:
            context.add_callback(ended.set)
            yield from (started(), snapshot_end())

        server = Fake(self, held)
        self.addCleanup(gc.enable)
        gc.disable()
        self.assertEqual(next(watch("v1/pods", server.server)).type, Type.SYNCED)
        self.assertTrue(ended.wait(30))

    def test_a_program_ends_whatever_it_still_refers_to(self) -> None:
        for program, code in (
            ("for event in w: break", 0),
            ("next(w)\nw.close()", 0),
            ("with w: next(w)", 0),
            ("def main():\n    for event in w: raise KeyError\nmain()", 1),
            ("import threading\nthreading.Thread(target=list, args=[w], daemon=True).start()\nthreading.Event().wait(0.5)", 0),
        ):
            with self.subTest(program=program):
                server = Fake(self, script(started(), snapshot_end())).server
                opened = f"import informerd\nw = informerd.watch('v1/pods', informerd.Server({server.address!r}))\n"
                ended = subprocess.run([sys.executable, "-c", opened + program], capture_output=True, timeout=60)
                self.assertEqual(ended.returncode, code, ended.stderr.decode())

    def test_asyncio(self) -> None:
        quiet(self)

        async def told(server: Fake, count: int) -> list[str]:
            lines = []
            async for event in awatch("v1/pods", server.server):
                lines.append(line(event))
                if len(lines) == count:
                    break
            return lines

        over = Fake(self, broken(*FIRST), script(started(), *THEN))
        self.assertEqual(asyncio.run(told(over, len(GAP))), GAP)
        misspelt = Fake(self, refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_RESOURCE"))
        with self.assertRaises(InformerdError):
            asyncio.run(told(misspelt, 1))

        async def cancelled() -> None:
            task = asyncio.create_task(told(Fake(self, script(started(), snapshot_end())), 2))
            await asyncio.sleep(0.2)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())


class Selections(unittest.TestCase):
    def test_say_what_the_arguments_say(self) -> None:
        selected = Selected(
            namespace="n", names=["a", "b"], labels="app=web", fields="spec.nodeName=node", metadata_only=True,
            without_managed_fields=True,
        )  # fmt: skip
        made = selection("apps/v1/deployments", selected)
        self.assertEqual((made.resource.group, made.resource.version, made.resource.resource), ("apps", "v1", "deployments"))
        (filter,) = made.filters
        self.assertEqual((filter.namespace, list(filter.names)), ("n", ["a", "b"]))
        self.assertEqual((filter.label_selector, filter.field_selector), ("app=web", "spec.nodeName=node"))
        self.assertEqual((made.shape, list(made.drop)), (api.SHAPE_METADATA_ONLY, [api.DROP_MANAGED_FIELDS]))

    def test_need_no_version(self) -> None:
        for text, *parts in (
            ("pods", "", "", "pods"),
            ("v1/pods", "", "v1", "pods"),
            ("deployments.apps", "apps", "", "deployments"),
            ("leases.coordination.k8s.io", "coordination.k8s.io", "", "leases"),
        ):
            made = selection(text, {}).resource
            self.assertEqual([made.group, made.version, made.resource], parts)

    def test_mistakes_are_told_at_once(self) -> None:
        for wrong in ("", "v1/", "/v1/pods", "a/b/c/d", ".apps", "pods.", "v1/pods.apps"):
            with self.assertRaisesRegex(ValueError, "is no resource"):
                watch(wrong, Fake(self).server)
        with self.assertRaisesRegex(TypeError, "label"):
            watch("v1/pods", Fake(self).server, label="app=web")  # type: ignore[call-arg]
