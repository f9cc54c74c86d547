"""The port of gRPC: its bounds, and when it opens and closes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import grpc
import grpc.aio

from pagemill.server.access.key_ring import KeyRing
from pagemill.server.records.record import OnEnd
from pagemill.server.rpc.certificates import Certificates
from pagemill.server.rpc.health import HealthService
from pagemill.server.rpc.reflection import ReflectionService
from pagemill.server.rpc.service import InferenceService
from pagemill.server.state import ServerState
from pagemill.server.transport.connections import raise_descriptor_limit

_MAX_STREAMS = 1024
"""Calls of one connection at a time; all of them together may be as many as connections."""
_MAX_IDLE_S = 75
"""As a connection of HTTP. Clients of gRPC connect again by themselves."""
_KEEPALIVE_S = 60
"""A client that has vanished without a word is found so soon, also in a long call."""
_KEEPALIVE_TIMEOUT_S = 20
_MESSAGE_SLACK_BYTES = 16
"""What a message has around its JSON, at most."""
_IDENTITY_ONLY = 1


class RpcListener:
    """gRPC on `--grpc-port`. Use: `await start()`, later `await stop(grace_s)`."""

    def __init__(
        self,
        state: ServerState,
        ring: KeyRing,
        listeners: Sequence[OnEnd] = (),
        *,
        shared: bool = False,
    ) -> None:
        """`listeners` get the record of each call at its end. `shared`: other processes listen on
        the port, too.

        Raises:
            ConfigError: the certificate cannot be used.
        """
        config = self._config = state.config
        self._services = (
            InferenceService(state, ring, listeners),
            HealthService(state),
            ReflectionService(state, ring),
        )
        self._shared = shared
        is_secure = config.tls.ssl_certfile is not None
        self._certificates = Certificates(config.tls) if is_secure else None
        self._server: grpc.aio.Server | None = None
        self._following: asyncio.Task[None] | None = None
        self.address = ""
        """Host and port, once it has started."""

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: the address cannot be listened on.
        """
        config = self._config
        connections = config.connections
        raise_descriptor_limit(2 * connections.max_connections)
        server = self._server = grpc.aio.server(
            handlers=self._services,
            options=self._options(),
            maximum_concurrent_rpcs=connections.max_connections,
        )
        address = _resolved(config.host, config.grpc_port or 0)
        try:
            if self._certificates is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._certificates.credentials())
                self._following = asyncio.create_task(self._certificates.follow())
        except RuntimeError:
            raise OSError(f"cannot listen on {address} for gRPC") from None
        self.address = f"{address.rpartition(':')[0]}:{port}"
        await server.start()

    async def stop(self, grace_s: float) -> None:
        """Accepts nothing more, and cancels calls that have not ended after `grace_s`."""
        if self._following is not None:
            self._following.cancel()
        if self._server is not None:
            await self._server.stop(grace_s)

    def _options(self) -> list[tuple[str, int]]:
        config, limits = self._config, self._config.connections
        return [
            ("grpc.so_reuseport", int(self._shared)),
            ("grpc.max_receive_message_length", config.max_body_bytes + _MESSAGE_SLACK_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", limits.max_header_bytes),
            ("grpc.absolute_max_metadata_size", limits.max_header_bytes),
            ("grpc.max_concurrent_streams", _MAX_STREAMS),
            ("grpc.max_allowed_incoming_connections", limits.max_connections),
            ("grpc.max_connection_idle_ms", 1000 * _MAX_IDLE_S),
            ("grpc.server_handshake_timeout_ms", int(1000 * limits.header_timeout)),
            ("grpc.keepalive_time_ms", 1000 * _KEEPALIVE_S),
            ("grpc.keepalive_timeout_ms", 1000 * _KEEPALIVE_TIMEOUT_S),
            # A small message can unpack to a very large one, which has no bound.
            ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        ]


def _resolved(host: str, port: int) -> str:
    """The same address of `host` that HTTP has."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    address = str(found[0][4][0])
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
