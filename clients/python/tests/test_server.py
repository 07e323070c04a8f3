from __future__ import annotations

import concurrent.futures
import os
import pathlib
import socket
import tempfile
import unittest
from typing import Any
from unittest import mock

import grpc

from informerd import Server, find, watch
from informerd import _server as module

from .fake import Fake, script, snapshot_end, started


class Servers(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.account = pathlib.Path(directory.name)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("INFORMERD_", "KUBERNETES_"))}
        for patch in (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(module, "_ACCOUNT", self.account),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def in_pod(self) -> None:
        (self.account / "token").write_text("secret\n")
        (self.account / "ca.crt").write_text("a bundle")

    def test_who_is_named_gets_the_pods_token_where_it_is_safe(self) -> None:
        self.in_pod()
        for address, safe in (
            ("http://127.0.0.1:8001", True), ("[::1]:8001", True), ("http://localhost:1", True), ("unix:///run/s", True),
            ("https://10.0.0.7:8643", True), ("http://10.0.0.7:8643", False), ("informerd:80", False),
        ):  # fmt: skip
            with mock.patch.dict(os.environ, INFORMERD_ADDRESS=address):
                self.assertEqual(find().metadata(), [("authorization", "Bearer secret")] if safe else [], address)
            if not safe:
                with self.assertRaisesRegex(ValueError, "plain text"):
                    find(address, token_file="token")

    def test_without_a_name_it_is_a_sidecar_that_gets_no_token(self) -> None:
        found = find()
        self.assertEqual((found.address, found.token_file), ("http://127.0.0.1:8001", None))
        self.in_pod()
        found = find(probe_timeout=0.1)
        self.assertEqual((found.address, found.token_file), ("http://127.0.0.1:8001", None))

    def test_a_pod_that_is_led_to_informerd_goes_there(self) -> None:
        self.in_pod()
        for host, address in (("10.0.0.7", "https://10.0.0.7:8643"), ("fd00::7", "https://[fd00::7]:8643")):
            os.environ |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "8643"}
            with mock.patch.object(Server, "answers", lambda self, _: self.address == address):
                found = find()
            self.assertEqual(found, Server(address, str(self.account / "ca.crt"), str(self.account / "token")))

    def test_mistakes_are_told(self) -> None:
        for wrong in ("localhost", "https://localhost", "unix://x", "http://a:1/path", "ftp://a:1", "http://:1", "http://a:x"):
            with self.assertRaisesRegex(ValueError, "is no address"):
                Server(wrong).channel()
        with self.assertRaisesRegex(ValueError, "off"):
            find("off")

    def test_only_an_informerd_that_is_ready_answers(self) -> None:
        def serving(answer: bytes) -> Server:
            def check(request: bytes, context: grpc.ServicerContext) -> bytes:
                if context.invocation_metadata() and "authorization" in dict(context.invocation_metadata()):
                    context.abort(grpc.StatusCode.INTERNAL, "a token was shown before it was known to whom")
                if request != b"\x0a\x14informerd.v1.Objects":
                    context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
                return answer

            handler: Any = grpc.unary_unary_rpc_method_handler(check)
            server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})])
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            self.addCleanup(server.stop, 0)
            return Server(f"127.0.0.1:{port}", token_file=str(self.account / "token"))

        self.in_pod()
        self.assertTrue(serving(b"\x08\x01").answers(60))
        self.assertFalse(serving(b"\x08\x02").answers(60))
        self.assertFalse(Fake(self).server.answers(60))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.assertFalse(Server(f"127.0.0.1:{silent.getsockname()[1]}").answers(0.1))

    def test_no_proxy_sees_the_token(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as proxy:
            proxy.setblocking(False)
            os.environ |= {"http_proxy": f"http://127.0.0.1:{proxy.getsockname()[1]}", "no_proxy": "", "NO_PROXY": ""}
            self.assertFalse(Server("http://127.0.0.1:1").answers(1))
            with self.assertRaises(BlockingIOError):
                proxy.accept()

    def test_the_token_is_read_for_every_stream(self) -> None:
        self.in_pod()
        fake = Fake(self, script(started(), snapshot_end()))
        with watch("v1/pods", find(fake.server.address)) as found:
            next(found)
        sent: Any = fake.tokens[0]["authorization"]
        self.assertEqual(sent, "Bearer secret")
