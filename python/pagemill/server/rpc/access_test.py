"""Who may call, how much, how long, and what is left when a call ends early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from pagemill.config import ConnectionConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.records.record import RequestRecord
from pagemill.server.rpc.table import METHODS, SERVICE
from pagemill.server.testing.rpc_server import RpcServer, answer, request, run_with

KEYS = (
    ApiKey.of("sk-a", Caller("web", "shop")),
    ApiKey.of("sk-m", Caller("scraper", scopes=frozenset({Scope.METRICS}))),
    ApiKey.of("sk-1", Caller("small", limits=KeyLimits(requests_per_minute=1))),
    ApiKey.of("sk-c", Caller("narrow", limits=KeyLimits(concurrency=1))),
    ApiKey.of("sk-o", Caller("other", models=frozenset({"alias"}))),
)
KEY = (("authorization", "Bearer sk-a"),)
SLOW = FakeOptions(step_s=0.01)
LONG = {"prompt": "abcd", "max_tokens": 200, "ignore_eos": True}
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


def test_without_a_key_there_is_only_health() -> None:
    async def check(server: RpcServer) -> None:
        for metadata in ((), (("authorization", "Bearer sk-x"),), (("x-api-key", ""),)):
            for method in METHODS:
                code, details, trailers = await server.refusal(method.name, "{", metadata)
                assert code is grpc.StatusCode.UNAUTHENTICATED and "API key" in details
                assert trailers["error-type"] == "AuthenticationError"
        assert await server.health() == SERVING
        for metadata in (KEY, (("x-api-key", "sk-a"),)):
            assert (await server.call("Complete", {"prompt": "a"}, metadata))["choices"]

    run_with(check, keys=KEYS)


def test_a_call_without_a_key_is_refused_before_its_message_comes() -> None:
    async def check(server: RpcServer) -> None:
        call = server.channel.stream_unary(f"/{SERVICE}/Complete")()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    run_with(check, keys=KEYS)


def test_scopes_and_models_of_keys() -> None:
    async def check(server: RpcServer) -> None:
        metrics, other = (("x-api-key", "sk-m"),), (("x-api-key", "sk-o"),)
        code, details, _ = await server.refusal("Complete", {"prompt": "a"}, metrics)
        assert code is grpc.StatusCode.PERMISSION_DENIED and "'inference'" in details
        models = await server.call("ListModels", metadata=other)
        assert [model["id"] for model in models["data"]] == ["alias"]
        body = {"prompt": "a", "model": "fake"}
        code, _, _ = await server.refusal("Complete", body, other)
        assert code is grpc.StatusCode.NOT_FOUND

    run_with(check, keys=KEYS)


def test_limits_of_keys() -> None:
    async def check(server: RpcServer) -> None:
        small, narrow = (("x-api-key", "sk-1"),), (("x-api-key", "sk-c"),)
        await server.call("Complete", {"prompt": "a", "max_tokens": 1}, small)
        code, details, trailers = await server.refusal("Complete", "no JSON", small)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "requests_per_minute" in details
        assert trailers["retry-after"] == "60"
        assert trailers["grpc-retry-pushback-ms"] == "60000"
        assert trailers["x-ratelimit-remaining-requests"] == "0"
        await server.call("ListModels", metadata=small)  # not metered
        stream = server.stream("StreamComplete", LONG, narrow)
        await stream.read()
        code, details, _ = await server.refusal("Complete", LONG, narrow)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "concurrency" in details
        stream.cancel()
        await until(lambda: server.fake.state.lifecycle.active == 0)
        await server.call("Complete", {"prompt": "a", "max_tokens": 1}, narrow)

    run_with(check, SLOW, keys=KEYS)


def test_tenants() -> None:
    tenants: list[tuple[str, str]] = []

    async def check(server: RpcServer) -> None:
        header = (("x-tenant-id", "blue"),)
        await server.call("Complete", {"prompt": "a"}, (*KEY, *header))
        await server.call("Complete", {"prompt": "a"}, KEY)
        bad = (("x-tenant-id", "b b"),)
        code, details, _ = await server.refusal("Complete", {"prompt": "a"}, (*KEY, *bad))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "X-Tenant-Id" in details

    def note(record: RequestRecord) -> None:
        tenants.append((record.key_id, record.tenant))

    run_with(check, keys=KEYS, trust_tenant_header=True, listeners=(note,))
    assert tenants[:2] == [("web", "blue"), ("web", "shop")]


@pytest.mark.parametrize("name", ["Complete", "StreamComplete"])
def test_a_call_that_is_cancelled_is_aborted(name: str) -> None:
    records: list[RequestRecord] = []

    async def check(server: RpcServer) -> None:
        method = server.channel.unary_stream(f"/{SERVICE}/{name}")
        call = method(request(LONG))
        await until(lambda: server.fake.async_engine.num_live == 1)
        call.cancel()
        await until(lambda: server.fake.async_engine.num_live == 0)
        await until(lambda: server.fake.state.lifecycle.active == 0)

    run_with(check, SLOW, listeners=(records.append,))
    assert [record.status for record in records] == [499]
    assert records[0].work.finish_reasons == ("abort",)


@pytest.mark.parametrize("fields", [{}, {"timeout": 60}])
def test_the_deadline_of_a_call_is_that_of_its_request(fields: dict[str, Any]) -> None:
    async def check(server: RpcServer) -> None:
        body = {**LONG, **fields}
        code, _, _ = await server.refusal("Complete", body, timeout=0.1)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: server.fake.async_engine.num_live == 0)
        code, details, _ = await server.refusal("Complete", {**LONG, "timeout": 0.1}, timeout=60)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED and "deadline" in details

    run_with(check, SLOW)


def test_a_stream_ends_with_its_deadline() -> None:
    async def check(server: RpcServer) -> None:
        stream = server.stream("StreamComplete", {**LONG, "timeout": 60})
        chunks = []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for message in stream:
                chunks.append(answer(message))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert chunks and all("error" not in chunk for chunk in chunks)

    run_with(check, FakeOptions(late_at_position=3))


def test_a_failure_is_a_status() -> None:
    async def check(server: RpcServer) -> None:
        code, details, _ = await server.refusal("Complete", LONG)
        assert code is grpc.StatusCode.INTERNAL and "failed this request" in details
        stream = server.stream("StreamComplete", LONG)
        found = []
        with pytest.raises(grpc.aio.AioRpcError, match="failed this request"):
            async for message in stream:
                found += answer(message)["choices"]
        assert len("".join(choice["text"] for choice in found)) == 3

    run_with(check, FakeOptions(fail_at_position=3))


def test_overload_says_when_to_come_back() -> None:
    async def check(server: RpcServer) -> None:
        server.fake.engine.paused = True
        streams = [server.stream("StreamComplete", LONG) for _ in range(2)]
        await until(lambda: server.fake.async_engine.num_live == 2)
        code, details, trailers = await server.refusal("Complete", LONG)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and details
        assert int(trailers["retry-after"]) >= 7
        for stream in streams:
            stream.cancel()

    run_with(check, FakeOptions(max_running=1, max_waiting=1, retry_after_s=7))


def test_while_the_model_is_loaded() -> None:
    async def check(server: RpcServer) -> None:
        assert await server.health() == NOT_SERVING
        code, details, trailers = await server.refusal("Complete", {"prompt": "a"})
        assert code is grpc.StatusCode.UNAVAILABLE and "loaded" in details
        assert trailers["retry-after"] == "5"

    run_with(check, loaded=False)


def test_a_drain_lets_calls_finish_and_refuses_new_ones() -> None:
    async def check(server: RpcServer) -> None:
        lifecycle = server.fake.state.lifecycle
        running = asyncio.create_task(server.call("Complete", {**LONG, "max_tokens": 20}))
        await until(lambda: lifecycle.active == 1)
        lifecycle.begin_drain()
        code, details, _ = await server.refusal("Complete", {"prompt": "a"})
        assert code is grpc.StatusCode.UNAVAILABLE and "shutting down" in details
        assert await server.health() == NOT_SERVING
        assert await lifecycle.wait_idle(60)
        assert (await running)["usage"]["completion_tokens"] == 20

    run_with(check, SLOW)


def test_calls_are_counted_and_logged_as_requests() -> None:
    records: list[RequestRecord] = []

    async def check(server: RpcServer) -> None:
        await server.call("Complete", {"prompt": "abcd", "max_tokens": 2}, KEY)
        await server.refusal("Complete", {"prompt": "a"})
        assert server.fake.state.loaded is not None
        text = server.fake.state.loaded.metrics.render().decode()
        path = f'path="/{SERVICE}/Complete"'
        for status in ("200", "401"):
            assert any(path in line and f'"{status}"' in line for line in text.splitlines())

    run_with(check, keys=KEYS, listeners=(records.append,))
    first, second = records
    assert (first.status, first.key_id, first.tenant) == (200, "web", "shop")
    assert first.client == "127.0.0.1" and first.work.prompt_tokens == 4
    assert (second.status, second.key_id) == (401, "")


def test_a_large_message_or_a_compressed_one_is_refused() -> None:
    async def check(server: RpcServer) -> None:
        code, _, _ = await server.refusal("Complete", {"prompt": "a" * 200_000})
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        code, _, _ = await server.refusal(
            "Complete", {"prompt": "a" * 200_000}, compression=grpc.Compression.Gzip
        )
        assert code is grpc.StatusCode.UNIMPLEMENTED
        large = (("x-large", "a" * 5000),)
        code, _, _ = await server.refusal("Complete", {"prompt": "a"}, large)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await server.call("Complete", {"prompt": "a"})

    run_with(check, connections=ConnectionConfig(max_header_bytes=4096))


def test_a_message_that_does_not_come_has_its_time() -> None:
    async def check(server: RpcServer) -> None:
        call = server.channel.stream_unary(f"/{SERVICE}/Complete")()
        with pytest.raises(grpc.aio.AioRpcError, match="--body-timeout") as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    run_with(check, connections=ConnectionConfig(body_timeout=0.2))


def test_connections_and_calls_have_bounds() -> None:
    async def check(server: RpcServer) -> None:
        server.fake.engine.paused = True
        streams = [server.stream("StreamComplete", LONG) for _ in range(2)]
        await until(lambda: server.fake.async_engine.num_live == 2)
        code, _, _ = await server.refusal("Complete", {"prompt": "a"})
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        own = (("grpc.use_local_subchannel_pool", 1),)
        others = [grpc.aio.insecure_channel(server.listener.address, own) for _ in range(2)]
        found = []
        for channel in others:
            try:
                await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60)
            except grpc.aio.AioRpcError as error:
                found.append(error.code())
        assert grpc.StatusCode.UNAVAILABLE in found
        for channel in others:
            await channel.close()
        for stream in streams:
            stream.cancel()
        await until(lambda: server.fake.state.lifecycle.active == 0)
        server.fake.engine.paused = False
        await server.call("Complete", {"prompt": "a"})

    run_with(check, connections=ConnectionConfig(max_connections=2))


@pytest.mark.parametrize("name", ["StreamComplete", "Complete"])
def test_a_client_that_takes_nothing_loses_its_request(name: str) -> None:
    records: list[RequestRecord] = []

    async def check(server: RpcServer) -> None:
        narrow = (("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0))
        async with grpc.aio.insecure_channel(server.listener.address, narrow) as channel:
            tokens = 50_000 if name == "StreamComplete" else 400
            body = {"prompt": "a", "max_tokens": tokens, "ignore_eos": True, "logprobs": 20}
            call = channel.unary_stream(f"/{SERVICE}/{name}")(request(body))
            if name == "StreamComplete":
                await call.read()
            await until(lambda: bool(records))
            assert server.fake.async_engine.num_live == 0
            assert server.fake.state.lifecycle.active == 0
            with pytest.raises(grpc.aio.AioRpcError, match="--send-timeout"):
                while await call.read() is not grpc.aio.EOF:
                    pass
        await server.call("Complete", {"prompt": "a"})

    run_with(
        check,
        FakeOptions(step_s=0.0001),
        listeners=(records.append,),
        max_model_len=100_000,
        connections=ConnectionConfig(send_timeout=0.1),
    )
    assert records[0].status == 499
