"""A line for each request, without what it must not hold."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.observe.logging import JsonFormatter, TextFormatter
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.records.access_log import fields_of, log_request
from pagemill.server.records.record import RequestRecord, Work
from pagemill.server.records.timings import RequestTimings
from pagemill.server.testing.fake_server import FakeServer, fake_server

_KEYS = [ApiKey.of("sk-hush", Caller("web", "shop"))]
_HEADERS = {"x-api-key": "sk-hush", "x-request-id": "r-1"}


def _lines(
    caplog: pytest.LogCaptureFixture, body: Callable[[FakeServer], Coroutine[Any, Any, None]]
) -> list[dict[str, Any]]:
    """The JSON lines of the requests that `body` sends."""

    async def run() -> None:
        options = FakeOptions(step_s=0.001)
        async with fake_server(options, keys=_KEYS, listeners=(log_request,)) as server:
            await body(server)

    with caplog.at_level(logging.INFO, "pagemill.access"):
        asyncio.run(run())
    formatter = JsonFormatter("api 0")
    found = [
        formatter.format(record) for record in caplog.records if record.name.endswith("access")
    ]
    assert not any("sk-hush" in line or "snowman" in line for line in found)
    return [json.loads(line) for line in found]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_line_says_what_a_request_took(caplog: pytest.LogCaptureFixture, streamed: bool) -> None:
    async def body(server: FakeServer) -> None:
        payload = {"prompt": "snowman", "max_tokens": 4, "ignore_eos": True, "stream": streamed}
        await server.client.post("/v1/completions", json=payload, headers=_HEADERS)

    (line,) = _lines(caplog, body)
    expected = {
        "level": "info",
        "process": "api 0",
        "logger": "pagemill.access",
        "message": "POST /v1/completions 200",
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "request_id": "r-1",
        "key": "web",
        "tenant": "shop",
        "model": "fake",
        "finish_reason": "length",
        "prompt_tokens": 7,
        "cached_tokens": 0,
        "completion_tokens": 4,
    }
    assert {name: line[name] for name in expected} == expected
    assert line["duration_ms"] >= line["generation_time_ms"]
    assert line["time_to_first_token_ms"] > 0


def test_refusals_have_lines_and_probes_have_none(caplog: pytest.LogCaptureFixture) -> None:
    async def body(server: FakeServer) -> None:
        await server.client.get("/health")
        await server.client.get("/metrics", headers=_HEADERS)
        await server.client.get("/metrics")
        await server.client.get("/a%0Ab?key=sk-hush", headers=_HEADERS)
        payload = {"prompt": "snowman", "max_tokens": -4}
        await server.client.post("/v1/completions", json=payload, headers=_HEADERS)

    lines = _lines(caplog, body)
    assert [line["message"] for line in lines] == [
        "GET /metrics 401",
        "GET /a%0Ab 404",
        "POST /v1/completions 400",
    ]
    assert "key" not in lines[0] and "tenant" not in lines[0]
    assert lines[2]["key"] == "web" and "model" not in lines[2]


def test_evicted_prompts_and_drafts_are_in_the_line() -> None:
    timings = RequestTimings(draft_tokens=6, accepted_draft_tokens=4, draft_steps=3)
    work = Work("fake", 32, 0, 8, evicted_tokens=16, timings=timings)
    found = fields_of(RequestRecord("POST", "/v1/completions", status=200, work=work))
    assert (found["evicted_tokens"], found["draft_tokens"]) == (16, 6)
    assert (found["draft_steps"], found["accepted_draft_tokens"]) == (3, 4)
    found = fields_of(RequestRecord("POST", "/v1/completions", status=200, work=Work("fake")))
    assert "evicted_tokens" not in found and "draft_tokens" not in found


def test_text_quotes_what_clients_choose() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "GET %s 200", ("/x",), None)
    record.__dict__["fields"] = {"path": '/x status="500"\nfake', "status": 200, "id": "r-1"}
    line = TextFormatter().format(record)
    assert line.endswith(r'GET /x 200 path="/x status=\"500\"\nfake" status=200 id=r-1')


def test_exceptions_stay_on_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), info)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: two\nlines")
