"""Prompts and outputs in the log: only if they are wanted, bounded, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pagemill.config import ConfigError, ContentLogConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.observe.logging import JsonFormatter
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.records import content_log
from pagemill.server.records.content_log import OutputLog
from pagemill.server.testing.fake_server import FakeServer, fake_server

_KEYS = [ApiKey.of("sk-hush", Caller("web", "shop"))]
_HEADERS = {"authorization": "Bearer sk-hush", "x-request-id": "r-1", "cookie": "sk-hush"}
_FIELDS = {"max_tokens": 4, "ignore_eos": True, "seed": 1}


def _lines(
    caplog: pytest.LogCaptureFixture,
    config: ContentLogConfig,
    body: Callable[[FakeServer], Awaitable[None]],
    options: FakeOptions | None = None,
) -> list[dict[str, Any]]:
    """The JSON lines about prompts and outputs of the requests that `body` sends."""

    async def run() -> None:
        async with fake_server(options, keys=_KEYS, content_log=config) as server:
            await body(server)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    found = [JsonFormatter().format(record) for record in caplog.records]
    assert not any("hush" in line for line in found)
    lines = [json.loads(line) for line in found]
    return [each for each in lines if each["message"] in ("prompt", "output")]


def _completion(**fields: Any) -> Callable[[FakeServer], Awaitable[None]]:
    async def body(server: FakeServer) -> None:
        payload = {"prompt": "snowman", **_FIELDS, **fields}
        got = await server.client.post("/v1/completions", json=payload, headers=_HEADERS)
        assert got.status_code == 200

    return body


@pytest.mark.parametrize("streamed", [False, True])
def test_prompts_and_outputs(caplog: pytest.LogCaptureFixture, streamed: bool) -> None:
    config = ContentLogConfig(enable_log_requests=True, enable_log_outputs=True)
    prompt, output = _lines(caplog, config, _completion(stream=streamed))
    shared = {"level": "info", "logger": "pagemill.contents", "request_id": "r-1", "key": "web"}
    shared["model"] = "fake"
    assert prompt.items() >= {**shared, "prompt": "snowman", "prompt_tokens": 7}.items()
    assert (prompt["max_tokens"], prompt["seed"], prompt["n"]) == (4, 1, 1)
    assert output.items() >= {**shared, "index": 0, "completion_tokens": 4}.items()
    assert output["finish_reason"] == "length" and len(output["output"]) == 4
    assert any("are written to this log" in record.getMessage() for record in caplog.records)


def test_nothing_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    assert _lines(caplog, ContentLogConfig(), _completion()) == []
    assert not any("snowman" in record.getMessage() for record in caplog.records)


def test_each_kind_alone(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = _lines(caplog, ContentLogConfig(enable_log_requests=True), _completion())
    assert line["message"] == "prompt"
    caplog.clear()
    lines = _lines(caplog, ContentLogConfig(enable_log_outputs=True), _completion(n=2))
    assert [(line["message"], line["index"]) for line in lines] == [("output", 0), ("output", 1)]


def test_lines_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    config = ContentLogConfig(enable_log_requests=True, enable_log_outputs=True, max_log_len=3)
    prompt, output = _lines(caplog, config, _completion())
    assert prompt["prompt"] == "sno..." and len(output["output"]) == 6
    assert (prompt["prompt_tokens"], output["completion_tokens"]) == (7, 4)
    reasons: list[str] = []
    log = OutputLog(lambda *line: reasons.append(line[3]), 1, 3)
    for _ in range(100):
        log.add(0, [1, 2], None)
    assert log._tokens == [[1, 2, 1]]  # pyright: ignore[reportPrivateUsage]
    log.close("abort")
    assert reasons == ["abort"]


def test_a_request_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_log, "_REQUEST_TOKENS", 5)
    config = ContentLogConfig(enable_log_requests=True, enable_log_outputs=True, max_log_len=3)
    lines = _lines(caplog, config, _completion(prompt=["abcd", "ab", "c", "d"]))
    prompts = [line["prompt"] for line in lines if line["message"] == "prompt"]
    assert prompts == ["abc...", "ab", "2 more prompts"]
    outputs = [line["output"] for line in lines if line["message"] == "output"]
    assert sum(len(output.removesuffix("...")) for output in outputs) == 5


def test_a_request_whose_prompt_cannot_be_logged_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("disk full")

    async def run() -> None:
        config = ContentLogConfig(enable_log_requests=True)
        async with fake_server(FakeOptions(step_s=0.01), content_log=config) as server:
            payload = {"prompt": "a", "max_tokens": 200}
            with contextlib.suppress(RuntimeError):
                await server.client.post("/v1/completions", json=payload)
            assert len(server.engine.submitted) == 1 and server.async_engine.num_live == 0

    monkeypatch.setattr(content_log.ContentLog, "prompts", fail)
    asyncio.run(run())


def test_an_output_that_failed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(server: FakeServer) -> None:
        payload = {"prompt": "a", "max_tokens": 200, "stream": True, "timeout": 60}
        await server.client.post("/v1/completions", json=payload, headers=_HEADERS)

    options = FakeOptions(late_at_position=3)
    (line,) = _lines(caplog, ContentLogConfig(enable_log_outputs=True), body, options)
    assert line["finish_reason"] == "error" and line["completion_tokens"] == 3


def test_texts_that_are_embedded(caplog: pytest.LogCaptureFixture) -> None:
    async def body(server: FakeServer) -> None:
        await server.client.post("/v1/embeddings", json={"input": ["ab", "c"]}, headers=_HEADERS)

    config = ContentLogConfig(enable_log_requests=True)
    lines = _lines(caplog, config, body, FakeOptions(pooled_size=4))
    assert [(line["index"], line["prompt"]) for line in lines] == [(0, "ab"), (1, "c")]


def test_a_length_needs_something_to_log() -> None:
    with pytest.raises(ConfigError, match="--max-log-len needs"):
        ContentLogConfig(max_log_len=5)
