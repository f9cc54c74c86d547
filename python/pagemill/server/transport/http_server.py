"""The HTTP server below the application: socket, connections, uvicorn's options."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import socket
from collections.abc import Callable, Generator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from pagemill.config import ConnectionConfig
from pagemill.server.transport.connections import Closable, Connections, raise_descriptor_limit
from pagemill.server.transport.http_protocol import BoundedHttpProtocol
from pagemill.server.transport.tls import Tls, TlsListener

_KEEP_ALIVE_S = 75  # above the idle timeout of common proxies, so that they close first
_BACKLOG = 2048
_PORT_OPTION = "--port (0 = any that is free)"


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
        connections = Connections(
            config.max_connections, descriptors, config.max_connections_per_address
        )
        connections.on_slow_reader = on_slow_reader
        self._tls = tls
        self._limits = config
        self._connections = connections
        self._accepting: list[asyncio.Task[None]] = []
        self._listening: list[socket.socket] = []
        protocol = functools.partial(BoundedHttpProtocol, limits=config, connections=connections)
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
        if self._tls is None or sockets is None:
            await super().serve(sockets)
            return
        timeout_s = self._limits.header_timeout
        listener = TlsListener(self._protocol, self._tls, self._connections, timeout_s)
        self._listening = sockets
        self._accepting = [asyncio.create_task(listener.accept(each)) for each in sockets]
        self._accepting.append(asyncio.create_task(self._tls.follow()))
        await super().serve([])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts no more connections, and ends those that there are."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self._listening:
            listener.close()
        await super().shutdown(sockets)

    def _protocol(self, handshake: Closable) -> BoundedHttpProtocol:
        return BoundedHttpProtocol(
            self.config,
            self.server_state,
            {},
            limits=self._limits,
            connections=self._connections,
            handshake=handshake,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Captures none."""
        yield


def listen(host: str, port: int, option: str = _PORT_OPTION) -> socket.socket:
    """A socket that listens; `option` is that of the address.

    Raises:
        OSError: the address cannot be listened on.
    """
    listener = bind(host, port, option)
    listener.listen(_BACKLOG)
    return listener


def bind(
    host: str, port: int, option: str = _PORT_OPTION, *, shared: bool = False
) -> socket.socket:
    """A socket that has the address and does not listen yet; `shared`: other processes may listen
    on the port, too, and the system distributes connections among those that do.

    Raises:
        OSError: the address cannot be had.
    """
    where = f"cannot listen on {host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OSError(error.errno, f"{where}: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        hint = f"; choose another {option}" if taken else ""
        raise OSError(error.errno, f"{where}: {error.strerror}{hint}") from error
    listener.setblocking(False)
    return listener
