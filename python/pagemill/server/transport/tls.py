"""TLS: the server's certificate, and the handshake of each connection."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from pagemill.config import ConfigError, TlsConfig
from pagemill.server.transport.connections import Closable, Connections, Room, address_of
from pagemill.server.watched_files import POLL_S, WatchedFiles, follow

_LOGGER = logging.getLogger("pagemill.server")
_ALPN = ["http/1.1"]
_ACCEPT_AGAIN_S = 0.1
_HIGH_WATER_BYTES = 64 * 1024  # of unsent data, as of connections without TLS


class Tls:
    """The context of new connections; another one once the files have changed.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        paths = (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs)
        self._files = WatchedFiles([_expanded(path) for path in paths if path is not None])
        self.context = _context(config)

    async def follow(self, poll_s: float = POLL_S) -> None:
        """Reads the files again when they change, for new connections. Never returns."""

        async def load() -> None:
            self.context = await asyncio.to_thread(_context, self._config)
            _LOGGER.info("--ssl-certfile was read again")

        await follow(self._files, load, poll_s)


def open_tls(config: TlsConfig) -> Tls | None:
    """None: connections are not encrypted.

    Raises:
        ConfigError: a file cannot be used.
    """
    return Tls(config) if config.ssl_certfile is not None else None


def _context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion[config.ssl_minimum_version]
    context.set_alpn_protocols(_ALPN)
    if config.ssl_ciphers is not None:
        try:
            context.set_ciphers(config.ssl_ciphers)
        except ssl.SSLError:
            raise ConfigError(f"--ssl-ciphers {config.ssl_ciphers!r}: OpenSSL knows none") from None
    certificate = _expanded(config.ssl_certfile or "")
    key = None if config.ssl_keyfile is None else _expanded(config.ssl_keyfile)
    files = certificate if key is None else f"{certificate}, --ssl-keyfile {key}"
    try:
        # A key with a password would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ssl-certfile {files}: {_reason(error)}") from None
    if config.ssl_ca_certs is not None:
        try:
            context.load_verify_locations(_expanded(config.ssl_ca_certs))
        except OSError as error:
            raise ConfigError(f"--ssl-ca-certs {config.ssl_ca_certs}: {_reason(error)}") from None
    context.verify_mode = ssl.VerifyMode(config.ssl_cert_reqs)
    return context


def _no_password() -> str:
    raise ValueError("the key has a password; remove it (openssl pkey)")


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not a certificate and its key in PEM ({error.reason or error})"
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


class _Handshake:
    """A connection until its handshake is complete: idle from its start."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def close_idle(self) -> None:
        """Makes room for another connection."""
        if self.task is not None:
            self.task.cancel()


class TlsListener:
    """Accepts connections and completes their handshakes.

    A server of asyncio would do that, but shows a connection only after its handshake: those that
    never complete one would be without bound.
    """

    def __init__(
        self,
        make: Callable[[Closable], asyncio.Protocol],
        tls: Tls,
        connections: Connections,
        timeout_s: float,
    ) -> None:
        """`make` makes the protocol of a connection, which takes the place of its argument among
        `connections`. `timeout_s` is for the handshake."""
        self._make = make
        self._tls = tls
        self._connections = connections
        self._timeout_s = timeout_s

    async def accept(self, listener: socket.socket) -> None:
        """Accepts connections of `listener` until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left, or the client has gone
                self._connections.refusals.warning(f"A connection was not accepted: {error}")
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            handshake = _Handshake()
            room = self._connections.opened(handshake, accepted.fileno(), address_of(peer))
            if room is Room.TAKEN:
                handshake.task = asyncio.create_task(self._open(accepted, handshake))
            else:
                accepted.close()

    async def _open(self, accepted: socket.socket, handshake: _Handshake) -> None:
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                functools.partial(self._make, handshake),
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._timeout_s,
            )
            transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        except OSError as error:  # ssl.SSLError, ConnectionError, TimeoutError
            self._connections.refusals.warning(f"A TLS handshake failed: {error}")
        finally:
            self._connections.closed(handshake)
