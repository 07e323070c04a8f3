"""Where informerd is, and how to speak to it."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio

_SIDECAR = "http://127.0.0.1:8001"
_ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")

_OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_receive_message_length", 64 << 20),  # An object may be larger than gRPC's 4 MiB.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.primary_user_agent", "informerd-python"),
    ("grpc.enable_http_proxy", 0),  # informerd is near, and a proxy must not see the token.
)


@dataclass(frozen=True)
class Server:
    """An informerd. A token is never sent in plain text to another machine."""

    #: http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH.
    address: str
    #: The CA of an https:// address, in PEM; without it, those that gRPC brings.
    ca_file: str | None = None
    #: A bearer token. Both files are read for every stream.
    token_file: str | None = None

    def __post_init__(self) -> None:
        if "://" not in self.address:
            object.__setattr__(self, "address", f"http://{self.address}")
        if self.token_file and not self._safe():
            raise ValueError(f"{self.address}: a token is not sent in plain text to another machine; use https")

    def channel(self) -> grpc.Channel:
        """A connection for the stubs in informerd.v1. Calls take `metadata=server.metadata()`."""
        target, credentials = self._target()
        if credentials:
            return grpc.secure_channel(target, credentials, _OPTIONS)
        return grpc.insecure_channel(target, _OPTIONS)

    def aio_channel(self) -> grpc.aio.Channel:
        """The same for asyncio."""
        target, credentials = self._target()
        if credentials:
            return grpc.aio.secure_channel(target, credentials, _OPTIONS)
        return grpc.aio.insecure_channel(target, _OPTIONS)

    def metadata(self) -> list[tuple[str, str]]:
        """The token, as its file has it now."""
        if not self.token_file:
            return []
        return [("authorization", f"Bearer {pathlib.Path(self.token_file).read_text().strip()}")]

    def answers(self, timeout: float) -> bool:
        """Whether an informerd is there and ready. No credentials are shown to what might be something else."""
        with self.channel() as channel:
            # grpc.health.v1.Health/Check of "informerd.v1.Objects", whose answer is SERVING. Nobody else has that service.
            check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
            name = b"informerd.v1.Objects"
            try:
                return bytes(check(b"\x0a" + bytes([len(name)]) + name, timeout=timeout)) == b"\x08\x01"
            except grpc.RpcError:
                return False

    def _safe(self) -> bool:
        scheme, host, _ = self._parts()
        if scheme in ("https", "unix") or host == "localhost":
            return True
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False

    def _parts(self) -> tuple[str, str, str]:
        """Scheme, host, and what gRPC connects to."""
        wrong = ValueError(
            f"{self.address!r} is no address: want http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH"
        )
        if self.address.startswith("unix:///"):
            return "unix", "", "unix:" + self.address.removeprefix("unix://")
        try:
            parts = urlsplit(self.address)
            known = parts.scheme in ("http", "https") and parts.port and parts.hostname and not parts.path.strip("/")
        except ValueError:
            raise wrong from None
        if not known:
            raise wrong
        return parts.scheme, parts.hostname or "", parts.netloc

    def _target(self) -> tuple[str, grpc.ChannelCredentials | None]:
        scheme, _, target = self._parts()
        if scheme != "https":
            return target, None
        roots = pathlib.Path(self.ca_file).read_bytes() if self.ca_file else None
        return target, grpc.ssl_channel_credentials(roots)


def find(
    address: str | None = None,
    ca_file: str | None = None,
    token_file: str | None = None,
    *,
    probe_timeout: float = 1.0,
) -> Server:
    """The informerd that the arguments or INFORMERD_ADDRESS, INFORMERD_CA_FILE and INFORMERD_TOKEN_FILE name.

    Without an address it is a sidecar at http://127.0.0.1:8001, or else the pod's in-cluster address if an informerd answers
    there. The token and CA of the pod's service account are the defaults for an address that was named; a sidecar that was
    only guessed gets no credentials.
    """
    address = address or os.environ.get("INFORMERD_ADDRESS")
    ca_file = ca_file or os.environ.get("INFORMERD_CA_FILE") or _of_pod("ca.crt")
    given = token_file or os.environ.get("INFORMERD_TOKEN_FILE")
    account = _of_pod("token")
    if address == "off":
        raise ValueError("INFORMERD_ADDRESS is 'off'")
    if address:
        named = Server(address, ca_file, given)
        return replace(named, token_file=account) if not given and named._safe() else named
    guess = Server(_SIDECAR, ca_file, given)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if host and port and account and not guess.answers(probe_timeout):
        led = Server(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", ca_file, given or account)
        if led.answers(probe_timeout):
            return led
    return guess


def _of_pod(name: str) -> str | None:
    path = _ACCOUNT / name
    return str(path) if path.exists() else None
