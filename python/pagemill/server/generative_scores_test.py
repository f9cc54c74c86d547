"""`POST /generative_scoring`: one request of several generations, and its limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from pagemill.engine.async_engine import AsyncEngine
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server import generative_scores
from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.generative_scores import label_logprobs
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.protocol.generative_score import GenerativeScoreRequest
from pagemill.server.testing.fake_server import FakeServer, fake_server

BODY: dict[str, Any] = {"query": "ab", "items": ["c", "de"], "label_token_ids": [5, 6]}


def run(
    test: Callable[[FakeServer], Awaitable[None]],
    options: FakeOptions | None = None,
    limits: KeyLimits | None = None,
) -> None:
    async def body() -> None:
        keys = [ApiKey.of("k", Caller("web", limits=limits))]
        async with fake_server(options, keys=keys) as server:
            async with asyncio.timeout(60):
                await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def post(server: FakeServer, status: int = 200, **fields: Any) -> Any:
    headers = {"X-API-Key": "k"}
    response = await server.client.post(
        "/generative_scoring", json={**BODY, **fields}, headers=headers
    )
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize("fields", [{}, {"query": [97, 98], "items": [[99], [100, 101]]}])
def test_what_is_joined_is_bounded(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    async def body(server: FakeServer) -> None:
        monkeypatch.setattr(generative_scores, "MAX_PAIR_CHARS", 7)  # "abc" and "abde"
        await post(server, **fields)
        num_requests = len(server.engine.submitted)
        monkeypatch.setattr(generative_scores, "MAX_PAIR_CHARS", 6)
        refused = await post(server, 400, **fields)
        assert refused["error"]["param"] == "items" and "have 7" in refused["error"]["message"]
        assert len(server.engine.submitted) == num_requests

    run(body)


def test_token_ids_of_a_query_fit_the_model() -> None:
    async def body(server: FakeServer) -> None:
        refused = await post(server, 400, query=[97] * 257, items=[[98]])
        assert refused["error"]["param"] == "query"

    run(body)


def test_log_probabilities_are_raw_whatever_the_server_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[str | None] = []
    submit = AsyncEngine.submit

    async def noted(
        self: AsyncEngine, prompts: Any, sampling: SamplingParams, **options: Any
    ) -> Any:
        modes.append(sampling.logprobs_mode)
        return await submit(self, prompts, sampling, **options)

    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        defaults = structs.replace(pipeline.model.defaults, logprobs_mode="processed_logprobs")
        pipeline.model = replace(pipeline.model, defaults=defaults)
        answer = await post(server, apply_softmax=False)
        assert answer["data"][0]["score"] == pytest.approx(math.exp(-0.5))
        assert modes == ["raw_logprobs"]

    monkeypatch.setattr(AsyncEngine, "submit", noted)
    run(body)


def test_a_request_that_the_server_ends_can_be_sent_again() -> None:
    async def body(server: FakeServer) -> None:
        server.engine.paused = True
        waiting = asyncio.create_task(post(server, 503))
        while len(server.engine.submitted) < 2:
            await asyncio.sleep(0.001)
        for request_id in list(server.engine._requests):  # pyright: ignore[reportPrivateUsage]
            server.engine.abort(request_id)
        assert "try again" in (await waiting)["error"]["message"]
        server.engine.paused = False

    run(body)


def test_all_labels_are_charged_at_once() -> None:
    async def body(server: FakeServer) -> None:
        answer = await post(server)
        assert answer["usage"]["total_tokens"] == 2 * (3 + 4 + 2)
        # Another one of 18 does not fit, although the first label's half does.
        num_requests = len(server.engine.submitted)
        refused = await post(server, 429)
        assert "tokens_per_minute" in refused["error"]["message"]
        assert len(server.engine.submitted) == num_requests
        # What is refused later takes nothing.
        await post(server, 400, query=[], items=[[300]])
        await post(server, items=["c"], label_token_ids=[5])

    run(body, limits=KeyLimits(tokens_per_minute=30))


def test_labels_share_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float | None] = []
    submit = AsyncEngine.submit

    async def noted(self: AsyncEngine, *arguments: Any, **options: Any) -> Any:
        deadlines.append(options["deadline"])
        return await submit(self, *arguments, **options)

    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        request = GenerativeScoreRequest(**BODY, timeout=50.0)
        await label_logprobs(pipeline, request, ANONYMOUS)  # as from a file: it has no record
        assert len(deadlines) == 2 and deadlines[0] is not None
        assert deadlines[0] == deadlines[1]

    monkeypatch.setattr(AsyncEngine, "submit", noted)
    run(body)
