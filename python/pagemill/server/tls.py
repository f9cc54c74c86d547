"""TLS: the server's certificate, and the handshake of each connection."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

from pagemill.config import ConfigError, TlsConfig
from pagemill.server.connections import Connections
from pagemill.server.watched_files import POLL_S, WatchedFiles, follow

_LOGGER = logging.getLogger("pagemill.server")
_ALPN = ["http/1.1"]
_MAX_EARLY_BYTES = 2**20
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
        """Reads the files again when they change. Connections keep what they have. Never returns."""

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
        return "not a certificate and its key in PEM" + (
            f" ({error.reason})" if error.reason else ""
        )
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


class TlsDoor(asyncio.Protocol):
    """A connection until its handshake is complete; `make` then makes its protocol.

    It counts as a connection from its start: one that never completes a handshake is idle.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        tls: Tls,
        connections: Connections,
        timeout_s: float,
    ) -> None:
        """`timeout_s` is for the handshake."""
        self._make = make
        self._tls = tls
        self._connections = connections
        self._timeout_s = timeout_s
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the handshake, or refuses the connection."""
        self._plain = cast(asyncio.Transport, transport)
        self._plain.pause_reading()  # until the handshake takes over
        if self._connections.opened(self, transport.get_extra_info("socket").fileno()):
            self._task = asyncio.get_running_loop().create_task(self._open())
        else:
            self._plain.abort()

    def data_received(self, data: bytes) -> None:
        """What a client sent together with the end of the handshake."""
        self._early += data
        if len(self._early) > _MAX_EARLY_BYTES:
            self._plain.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._is_lost = True
        self._connections.closed(self)

    def close_idle(self) -> None:
        """Makes room for another connection."""
        self._plain.abort()

    async def _open(self) -> None:
        loop, transport = asyncio.get_running_loop(), None
        try:
            transport = await loop.start_tls(
                self._plain,
                self,
                self._tls.context,
                server_side=True,
                ssl_handshake_timeout=self._timeout_s,
            )
        except OSError as error:  # ssl.SSLError, ConnectionError, TimeoutError
            self._connections.refusals.warning(f"A TLS handshake failed: {error}")
        finally:
            self._connections.closed(self)
            if transport is None:
                self._plain.abort()
        if transport is None or self._is_lost:
            return
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._early:
            protocol.data_received(bytes(self._early))
