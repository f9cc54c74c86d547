"""Health over gRPC, as clients watch it."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from pagemill.config import ConnectionConfig
from pagemill.server.testing.rpc_server import RpcServer, run_with

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
WATCH = "/grpc.health.v1.Health/Watch"


def test_changes_are_said_until_the_server_shuts_down() -> None:
    async def check(server: RpcServer) -> None:
        lifecycle = server.fake.state.lifecycle
        call = server.channel.unary_stream(WATCH)(b"")
        assert await call.read() == SERVING
        silent = asyncio.create_task(call.read())
        await asyncio.sleep(0.1)
        assert not silent.done()
        lifecycle.begin_drain()
        assert await silent == NOT_SERVING
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    run_with(check)


def test_a_server_that_loads_is_not_serving() -> None:
    async def check(server: RpcServer) -> None:
        call = server.channel.unary_stream(WATCH)(b"")
        assert await call.read() == NOT_SERVING
        call.cancel()
        assert await server.health() == NOT_SERVING

    run_with(check, loaded=False)


def test_few_watch_at_a_time() -> None:
    async def code_of_another(server: RpcServer) -> grpc.StatusCode | None:
        """None: it is answered."""
        call = server.channel.unary_stream(WATCH)(b"")
        try:
            assert await call.read() == SERVING
        except grpc.aio.AioRpcError as error:
            return error.code()
        call.cancel()
        return None

    async def check(server: RpcServer) -> None:
        calls = [server.channel.unary_stream(WATCH)(b"") for _ in range(2)]
        for call in calls:
            assert await call.read() == SERVING
        assert await code_of_another(server) is grpc.StatusCode.UNIMPLEMENTED
        assert await server.health() == SERVING
        calls[0].cancel()
        async with asyncio.timeout(60):
            while await code_of_another(server) is not None:
                await asyncio.sleep(0.01)

    run_with(check, connections=ConnectionConfig(max_connections=8))
