"""Encrypted connections: certificates, also new ones, ciphers, versions, stuck handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from pagemill.config import ConfigError, ConnectionConfig, TlsConfig
from pagemill.server.testing.certificates import Certificate, make_certificate
from pagemill.server.testing.fake_server import fake_server
from pagemill.server.transport.http_server import HttpServer, listen
from pagemill.server.transport.tls import Tls, open_tls

GET = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("first"), "first")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("second"), "second")


def config_of(made: Certificate, **options: Any) -> TlsConfig:
    return TlsConfig(ssl_certfile=str(made.certificate), ssl_keyfile=str(made.key), **options)


@dataclass(frozen=True)
class Secure:
    """A server over the fake engine that listens on `port`."""

    port: int
    tls: Tls

    async def connect(
        self, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = None if context is None else "localhost"
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname=name
        )

    async def get(self, context: ssl.SSLContext) -> bytes:
        reader, writer = await self.connect(context)
        with contextlib.closing(writer):
            writer.write(GET)
            return await reader.read()


@contextlib.asynccontextmanager
async def running(tls: Tls, limits: ConnectionConfig) -> AsyncGenerator[Secure]:
    listener = listen("127.0.0.1", 0)
    async with fake_server() as fake:
        server = HttpServer(fake.app, limits, tls)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield Secure(listener.getsockname()[1], tls)
        finally:
            server.should_exit = True
            await serving


def secure_test(
    config: TlsConfig,
    body: Callable[[Secure], Awaitable[None]],
    limits: ConnectionConfig | None = None,
) -> None:
    tls = open_tls(config)
    assert tls is not None

    async def main() -> None:
        async with running(tls, limits or ConnectionConfig()) as server:
            await body(server)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_requests_are_answered(first: Certificate) -> None:
    async def check(server: Secure) -> None:
        answers = await asyncio.gather(*[server.get(first.client()) for _ in range(20)])
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        reader, writer = await server.connect(None)
        writer.write(GET)  # not encrypted
        with contextlib.suppress(ConnectionError):
            assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        assert (await server.get(first.client())).startswith(b"HTTP/1.1 200")

    secure_test(config_of(first), check)


def test_a_new_certificate_is_used_and_a_bad_one_is_not(
    first: Certificate, second: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = Certificate(tmp_path / "used.pem", tmp_path / "used.key")

    def install(made: Certificate) -> None:
        shutil.copy(made.certificate, used.certificate)
        shutil.copy(made.key, used.key)

    async def until_issued_by(server: Secure, made: Certificate) -> None:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(ssl.SSLError):
                    await server.get(made.client())
                    return
                await asyncio.sleep(0.005)

    async def check(server: Secure) -> None:
        following = asyncio.create_task(server.tls.follow(poll_s=0.005))
        reader, writer = await server.connect(first.client())
        install(second)
        await until_issued_by(server, second)
        with pytest.raises(ssl.SSLError):
            await server.get(first.client())
        writer.write(GET)  # a connection from before
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        shutil.copy(first.certificate, used.certificate)  # does not fit the key
        async with asyncio.timeout(60):
            while "stays in use" not in caplog.text:
                await asyncio.sleep(0.005)
        await server.get(second.client())
        install(first)
        await until_issued_by(server, first)
        following.cancel()

    install(first)
    with caplog.at_level(logging.WARNING):
        secure_test(config_of(used), check)
    assert "PRIVATE" not in caplog.text


def test_versions_and_ciphers(first: Certificate) -> None:
    async def check(server: Secure) -> None:
        old, other = first.client(), first.client()
        for context in (old, other):
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        assert (await server.get(old)).startswith(b"HTTP/1.1 200")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.get(other)

    async def check_newest(server: Secure) -> None:
        old = first.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.get(old)
        assert (await server.get(first.client())).startswith(b"HTTP/1.1 200")

    secure_test(config_of(first, ssl_ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"), check)
    secure_test(config_of(first, ssl_minimum_version="TLSv1_3"), check_newest)


def test_certificates_of_clients(first: Certificate, second: Certificate) -> None:
    async def check(server: Secure) -> None:
        known = first.client()
        known.load_cert_chain(second.certificate, second.key)
        assert (await server.get(known)).startswith(b"HTTP/1.1 200")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert await server.get(first.client()) == b""
            raise ConnectionError  # TLS 1.3 clients learn it with the first byte

    required = config_of(first, ssl_ca_certs=str(second.certificate), ssl_cert_reqs=2)
    secure_test(required, check)


def test_a_stuck_handshake_is_cut_off_and_displaced(first: Certificate) -> None:
    async def check(server: Secure) -> None:
        reader, writer = await server.connect(None)
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        stuck = [await server.connect(None) for _ in range(8)]
        assert (await server.get(first.client())).startswith(b"HTTP/1.1 200")
        for _, writer in stuck:
            writer.close()

    secure_test(config_of(first), check, ConnectionConfig(max_connections=4, header_timeout=1.0))


def test_files_that_cannot_be_used(first: Certificate, second: Certificate, tmp_path: Path) -> None:
    locked = make_certificate(tmp_path, "locked", password="hush-hush")
    config = config_of(first)
    for wrong, part in (
        (replace(config, ssl_certfile=str(tmp_path / "absent")), "No such file"),
        (replace(config, ssl_keyfile=str(second.key)), "not a certificate and its key"),
        (replace(config, ssl_keyfile=None), "not a certificate and its key"),
        (replace(config, ssl_ciphers="NONE-SUCH"), "--ssl-ciphers"),
        (replace(config, ssl_ca_certs=str(first.key)), "--ssl-ca-certs"),
        (config_of(locked), "has a password"),
    ):
        with pytest.raises(ConfigError, match=part):
            open_tls(wrong)
    assert open_tls(TlsConfig()) is None
    for alone in ({"ssl_keyfile": "a"}, {"ssl_ca_certs": "a"}, {"ssl_cert_reqs": 2}):
        with pytest.raises(ConfigError, match="needs"):
            TlsConfig(**alone)
