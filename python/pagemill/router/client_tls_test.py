"""Servers with https behind a router."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagemill.config import ConfigError, RouterConfig, TlsConfig
from pagemill.router.client_tls import client_context
from pagemill.router.fleet import Fleet
from pagemill.router.testing.fake_fleet import listening, running_router, until
from pagemill.server.testing.certificates import Certificate, make_certificate
from pagemill.server.testing.fake_server import fake_server
from pagemill.server.transport.tls import Tls

URL = "https://127.0.0.1:1"
BODY: dict[str, Any] = {"model": "fake", "prompt": "abc", "max_tokens": 3}


@pytest.fixture(scope="module")
def of_server(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("server"), "server")


@pytest.fixture(scope="module")
def of_router(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("router"), "router")


@contextlib.asynccontextmanager
async def routed(
    certificate: Certificate, tls: dict[str, Any], **settings: object
) -> AsyncGenerator[tuple[httpx.AsyncClient, Fleet]]:
    """A router to one server with `certificate`; `tls`: further options of the server."""
    files = {
        "ssl_certfile": str(certificate.certificate),
        "ssl_keyfile": str(certificate.key),
    }
    async with (
        fake_server(max_model_len=4096) as server,
        listening(server.app, tls=Tls(TlsConfig(**files, **tls))) as url,
        running_router([url], **settings) as (client, fleet, _),
    ):
        yield client, fleet


def test_requests_pass_encrypted(of_server: Certificate) -> None:
    async def test() -> None:
        trusted = {"server_ca_file": str(of_server.certificate)}
        async with routed(of_server, {}, **trusted) as (client, fleet):
            await until(lambda: len(fleet.available) == 1)
            for _ in range(2):
                got = await client.post("/v1/completions", json=BODY)
                assert got.status_code == 200 and got.json()["usage"]["completion_tokens"] == 3
            models = await client.get("/v1/models")
            assert models.json()["data"][0]["id"] == "fake"

    asyncio.run(test())


def test_a_certificate_of_another_authority_is_not_accepted(
    of_server: Certificate, of_router: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        trusted = {"server_ca_file": str(of_router.certificate)}
        async with routed(of_server, {}, **trusted) as (client, fleet):
            (server,) = fleet.servers
            with pytest.raises(Exception, match="certificate is not accepted.*--server-ca-file"):
                await server.upstream.send("GET", "/ready", [(b"host", server.upstream.host)])
            assert not fleet.available
            assert (await client.post("/v1/completions", json=BODY)).status_code == 503

    asyncio.run(test())


@pytest.mark.parametrize("has_one", [True, False])
def test_a_server_may_want_a_certificate(
    of_server: Certificate, of_router: Certificate, has_one: bool
) -> None:
    settings = {"server_ca_file": str(of_server.certificate)}
    if has_one:
        settings["server_certfile"] = str(of_router.certificate)
        settings["server_keyfile"] = str(of_router.key)
    wants = {"ssl_ca_certs": str(of_router.certificate), "ssl_cert_reqs": 2}

    async def test() -> None:
        async with routed(of_server, wants, **settings) as (client, fleet):
            if has_one:
                await until(lambda: len(fleet.available) == 1)
                got = await client.post("/v1/completions", json=BODY)
                assert got.status_code == 200
                return
            (server,) = fleet.servers
            with pytest.raises(Exception, match="cannot be reached|broke off"):
                await server.upstream.send("GET", "/ready", [(b"host", server.upstream.host)])
            assert not fleet.available

    asyncio.run(test())


def test_files_that_cannot_be_used(of_server: Certificate, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no certificate")
    protected = make_certificate(tmp_path, "protected", password="secret")
    for options, said in (
        ({"server_ca_file": str(tmp_path / "absent")}, "--server-ca-file .*absent: No such file"),
        ({"server_ca_file": str(text)}, "--server-ca-file .*text: it is not PEM"),
        ({"server_certfile": str(text)}, "--server-certfile .*text: it is not PEM"),
        (
            {
                "server_certfile": str(protected.certificate),
                "server_keyfile": str(protected.key),
            },
            "the key has a password",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            client_context(RouterConfig(server=(URL,), **options))
    assert client_context(RouterConfig(server=("http://127.0.0.1:1",))) is None
    for server, options, said in (
        ("http://127.0.0.1:1", {"server_ca_file": "a"}, "--server-ca-file needs a --server"),
        ("http://127.0.0.1:1", {"server_certfile": "a"}, "--server-certfile needs a --server"),
        (URL, {"server_keyfile": "a"}, "--server-keyfile needs --server-certfile"),
        ("ftp://127.0.0.1:1", {}, "is not a server"),
    ):
        with pytest.raises(ConfigError, match=said):
            RouterConfig(server=(server,), **options)
