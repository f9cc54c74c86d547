"""The server's certificate for gRPC, which reads the same files as HTTP by its own means."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import grpc

from pagemill.config import TlsConfig
from pagemill.server.transport.tls import open_tls
from pagemill.server.watched_files import POLL_S, WatchedFiles, follow

_LOGGER = logging.getLogger("pagemill.server")


class Certificates:
    """The files of `--ssl-certfile` and its like; others once they have changed.

    Raises:
        ConfigError: a file cannot be used.
        OSError: likewise.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        paths = (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs)
        self._files = WatchedFiles([_expanded(path) for path in paths if path is not None])
        self._latest = self._used = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """What a port needs; each handshake has the latest files."""
        return grpc.dynamic_ssl_server_credentials(
            self._used, cast(Any, self._changed), self._config.ssl_cert_reqs == 2
        )

    async def follow(self, poll_s: float = POLL_S) -> None:
        """Reads the files again when they change. Never returns."""

        async def load() -> None:
            self._latest = await asyncio.to_thread(self._read)
            _LOGGER.info("--ssl-certfile was read again, for gRPC")

        await follow(self._files, load, poll_s)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """gRPC's threads call it before a handshake; None: nothing has changed."""
        latest = self._latest
        if latest is self._used:
            return None
        self._used = latest
        return latest

    def _read(self) -> grpc.ServerCertificateConfiguration:
        config = self._config
        open_tls(config)  # its sentences say what is wrong with a file
        certificate = Path(_expanded(config.ssl_certfile or "")).read_bytes()
        key, authorities = certificate, None
        if config.ssl_keyfile is not None:
            key = Path(_expanded(config.ssl_keyfile)).read_bytes()
        if config.ssl_ca_certs is not None:
            authorities = Path(_expanded(config.ssl_ca_certs)).read_bytes()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())
