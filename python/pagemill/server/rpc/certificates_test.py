"""gRPC over TLS: the server's certificate and its successors, and those of clients."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest

from pagemill.config import ConfigError, ServerConfig, TlsConfig
from pagemill.server.rpc.certificates import Certificates
from pagemill.server.testing.certificates import Certificate, make_certificate
from pagemill.server.testing.rpc_server import RpcServer, run_with

HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("first"), "first")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("second"), "second")


def config_of(made: Certificate, **options: Any) -> TlsConfig:
    return TlsConfig(ssl_certfile=str(made.certificate), ssl_keyfile=str(made.key), **options)


async def is_trusted(
    server: RpcServer, made: Certificate, own: Certificate | None = None, timeout_s: float = 60
) -> bool:
    """Whether a client that trusts `made`, and shows `own`, is answered on a new connection."""
    shown = () if own is None else (own.key.read_bytes(), own.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(made.certificate.read_bytes(), *shown)
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.secure_channel(server.listener.address, credentials, options) as channel:
        try:
            await channel.unary_unary(HEALTH)(b"", timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            return False
        return True


def test_a_new_certificate_is_used(first: Certificate, second: Certificate, tmp_path: Path) -> None:
    used = Certificate(tmp_path / "used.pem", tmp_path / "used.key")

    def install(made: Certificate) -> None:
        shutil.copy(made.certificate, used.certificate)
        shutil.copy(made.key, used.key)

    async def check(server: RpcServer) -> None:
        assert await is_trusted(server, first) and not await is_trusted(server, second)
        install(second)
        async with asyncio.timeout(60):
            while not await is_trusted(server, second):
                await asyncio.sleep(0.05)
        assert not await is_trusted(server, first)
        with pytest.raises(grpc.aio.AioRpcError):
            await server.health()  # not encrypted
        assert await is_trusted(server, second)

    install(first)
    run_with(check, tls=config_of(used))


def test_certificates_of_clients(first: Certificate, second: Certificate) -> None:
    async def check(server: RpcServer) -> None:
        assert await is_trusted(server, first, second)
        assert not await is_trusted(server, first)

    required = config_of(first, ssl_ca_certs=str(second.certificate), ssl_cert_reqs=2)
    run_with(check, tls=required)


def test_a_key_in_the_file_of_the_certificate(first: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(first.key.read_bytes() + first.certificate.read_bytes())

    async def check(server: RpcServer) -> None:
        assert await is_trusted(server, first)

    run_with(check, tls=TlsConfig(ssl_certfile=str(both)))


def test_what_cannot_be_used(first: Certificate, second: Certificate, tmp_path: Path) -> None:
    mixed = TlsConfig(ssl_certfile=str(first.certificate), ssl_keyfile=str(second.key))
    with pytest.raises(ConfigError, match="not a certificate and its key"):
        Certificates(mixed)
    with pytest.raises(ConfigError, match="No such file"):
        Certificates(TlsConfig(ssl_certfile=str(tmp_path / "absent")))
    for options in (
        {"ssl_ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
        {"ssl_minimum_version": "TLSv1_3"},
        {"ssl_ca_certs": str(second.certificate), "ssl_cert_reqs": 1},
    ):
        with pytest.raises(ConfigError, match="does not work with --grpc-port"):
            ServerConfig(grpc_port=0, tls=config_of(first, **options))
