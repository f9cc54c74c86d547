"""Spans of requests, as a collector receives them."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from pagemill.config import ConfigError, ServeConfig, build
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.records import traces
from pagemill.server.records.collector import Collector, values
from pagemill.server.records.listeners import RecordListeners, check_listeners
from pagemill.server.testing.fake_server import FakeServer, fake_server

_KEYS = [ApiKey.of("sk-hush", Caller("web", "shop"))]
_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_PARENT = "00f067aa0ba902b7"
_HEADERS = {
    "x-api-key": "sk-hush",
    "x-request-id": "r-1",
    "traceparent": f"00-{_TRACE}-{_PARENT}-01",
    "tracestate": "vendor=1",
}
_BODY = {"prompt": "snowman", "max_tokens": 4, "n": 2, "temperature": 0.5, "ignore_eos": True}


@contextlib.asynccontextmanager
async def _traced(endpoint: str) -> AsyncGenerator[FakeServer, None]:
    records = RecordListeners(build(ServeConfig, {"otlp_traces_endpoint": endpoint}))
    options = FakeOptions(step_s=0.001)
    try:
        async with fake_server(options, keys=_KEYS, listeners=records.each) as server:
            yield server
    finally:
        await asyncio.to_thread(records.close)


def _by_name(spans: list[Any]) -> dict[str, Any]:
    return {span.name: span for span in spans}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_is_a_span_with_its_stages(streamed: bool) -> None:
    async def body(collector: Collector) -> None:
        async with _traced(collector.endpoint) as server:
            begun = time.time_ns()
            payload = {**_BODY, "stream": streamed}
            got = await server.client.post("/v1/completions", json=payload, headers=_HEADERS)
            assert got.status_code == 200
            spans = _by_name(await asyncio.to_thread(collector.wait_for, 5))
        assert set(spans) == {"POST /v1/completions", *("prepare", "queue", "prefill", "decode")}
        span = spans.pop("POST /v1/completions")
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (_TRACE, _PARENT)
        assert span.trace_state == "vendor=1"
        assert span.kind == Span.SPAN_KIND_SERVER and span.status.code == Status.STATUS_CODE_UNSET
        assert begun <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()
        for stage in spans.values():
            assert stage.parent_span_id == span.span_id
            assert span.start_time_unix_nano <= stage.start_time_unix_nano
            assert stage.start_time_unix_nano <= stage.end_time_unix_nano
        found = values(span.attributes)
        expected = {
            "http.route": "/v1/completions",
            "http.response.status_code": 200,
            "gen_ai.request.id": "r-1",
            "gen_ai.request.n": 2,
            "gen_ai.request.max_tokens": 4,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.operation.name": "text_completion",
            "gen_ai.response.model": "fake",
            "gen_ai.response.finish_reasons": ("length",),
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.completion_tokens": 8,
            "pagemill.tenant": "shop",
        }
        assert {name: found[name] for name in expected} == expected
        assert found["gen_ai.latency.e2e"] >= found["gen_ai.latency.time_to_first_token"] > 0
        assert b"sk-hush" not in collector.bytes and b"snowman" not in collector.bytes
        assert collector.resources[0]["service.name"] == "pagemill"

    with Collector() as collector:
        asyncio.run(body(collector))


def test_refusals_and_failures(caplog: pytest.LogCaptureFixture) -> None:
    async def body(collector: Collector) -> None:
        async with _traced(collector.endpoint) as server:
            client = server.client
            await client.get("/health")
            await client.get("/metrics", headers=_HEADERS)
            await client.post("/v1/completions", json=_BODY)  # no key
            bad = {**_BODY, "max_tokens": -4}
            await client.post("/v1/completions", json=bad, headers={"x-api-key": "sk-hush"})
            late = {**_BODY, "max_tokens": 200, "timeout": 0.001}
            await client.post("/v1/completions", json=late, headers=_HEADERS)
            broken = {**_HEADERS, "traceparent": "00-x", "tracestate": "=,=" * 1000}
            await client.get("/v1/models", headers=broken)
            quoted = {**_HEADERS, "tracestate": "SAY THIS,say!=1"}
            await client.get("/v1/models", headers=quoted)
        roots = [span for span in collector.wait_for(4) if span.kind == Span.SPAN_KIND_SERVER]
        seen = [
            (span.name, values(span.attributes)["http.response.status_code"], span.status.code)
            for span in roots
        ]
        assert seen == [
            ("POST /v1/completions", 400, Status.STATUS_CODE_UNSET),
            ("POST /v1/completions", 504, Status.STATUS_CODE_ERROR),
            *[("GET /v1/models", 200, Status.STATUS_CODE_UNSET)] * 2,
        ]
        assert roots[2].parent_span_id == b"" and roots[2].trace_id.hex() != _TRACE
        assert roots[3].trace_id.hex() == _TRACE
        assert "say" not in caplog.text.lower()

    with Collector() as collector:
        asyncio.run(body(collector))


def test_a_client_that_is_not_sampled_has_no_span() -> None:
    async def body(collector: Collector) -> None:
        async with _traced(collector.endpoint) as server:
            headers = {**_HEADERS, "traceparent": f"00-{_TRACE}-{_PARENT}-00"}
            await server.client.post("/v1/completions", json=_BODY, headers=headers)
        assert not collector.spans and not collector.num_requests

    with Collector() as collector:
        asyncio.run(body(collector))


@pytest.mark.parametrize("hangs", [True, False])
def test_a_collector_that_hangs_or_is_away_costs_requests_nothing(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_MAX_QUEUED_SPANS", 8)
    monkeypatch.setattr(traces, "_MAX_BATCH_SPANS", 4)
    monkeypatch.setattr(traces, "_CLOSE_TIMEOUT_S", 0.1)

    async def body(endpoint: str, collector: Collector) -> None:
        async with _traced(endpoint) as server:
            for _ in range(20):
                got = await server.client.post("/v1/completions", json=_BODY, headers=_HEADERS)
                assert got.status_code == 200
            if hangs:
                assert collector.num_requests <= 1  # the others wait behind it, or are dropped

    with Collector(hangs=True) as collector:
        endpoint = collector.endpoint if hangs else "http://127.0.0.1:9"
        asyncio.run(body(endpoint, collector))


def test_a_server_without_traces_imports_nothing() -> None:
    script = (
        "import sys, json, pagemill.server.records.listeners as l\n"
        "from pagemill.config import ServeConfig\n"
        "l.RecordListeners(ServeConfig()).close()\n"
        "print(json.dumps([m for m in sys.modules if m.startswith('opentelemetry')]))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert json.loads(out.stdout) == []


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = build(ServeConfig, {"otlp_traces_endpoint": "http://localhost:4318"})
    check_listeners(config)
    monkeypatch.setitem(sys.modules, "pagemill.server.records.traces", None)
    with pytest.raises(ConfigError, match=r"pip install 'pagemill\[tracing\]'"):
        check_listeners(config)
    with pytest.raises(ConfigError, match="is not a URL"):
        build(ServeConfig, {"otlp_traces_endpoint": "localhost:4318"})
