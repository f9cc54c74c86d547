"""The HTTP server below the application: socket, connections, uvicorn's options."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Generator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from pagemill.config import ConnectionConfig
from pagemill.server.connections import Connections, raise_descriptor_limit
from pagemill.server.http_protocol import BoundedHttpProtocol
from pagemill.server.tls import Tls, TlsDoor

_KEEP_ALIVE_S = 75  # above the idle timeout of common proxies, so that they close first
_BACKLOG = 2048


class HttpServer(uvicorn.Server):
    """uvicorn with bounded connections, and without its signal handling: a signal starts a drain.

    Use: `await HttpServer(app, config).serve([listener])`, and `should_exit = True` ends it.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ConnectionConfig,
        tls: Tls | None = None,
        on_slow_reader: Callable[[], None] = lambda: None,
    ) -> None:
        """`tls` None: connections are not encrypted. `on_slow_reader` is called when a connection
        is closed because its client took too little of a response."""
        descriptors = raise_descriptor_limit(config.max_connections)
        connections = Connections(config.max_connections, descriptors)
        connections.on_slow_reader = on_slow_reader
        self._tls = tls
        plain = functools.partial(BoundedHttpProtocol, limits=config, connections=connections)

        def protocol(**options: Any) -> asyncio.Protocol:
            make = functools.partial(plain, **options)
            if tls is None:
                return make()
            return TlsDoor(make, tls, connections, config.header_timeout)

        super().__init__(
            uvicorn.Config(
                app,
                http=cast(Any, protocol),  # uvicorn only calls it
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=True,
                timeout_keep_alive=_KEEP_ALIVE_S,
                backlog=_BACKLOG,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until `should_exit` is set; new certificates are used as they come."""
        following = asyncio.create_task(self._tls.follow()) if self._tls is not None else None
        try:
            await super().serve(sockets)
        finally:
            if following is not None:
                following.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Captures none."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: the address cannot be listened on.
    """
    listener = bind(host, port)
    listener.listen(_BACKLOG)
    return listener


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that has the address and does not listen yet; `shared`: other processes may listen
    on the port, too, and the system distributes connections among those that do.

    Raises:
        OSError: the address cannot be had.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
