"""What a server does with requests while its queue is full: little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.task import Task
from pagemill.render.renderer import ChatPrompt
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.error_shapes import ANTHROPIC, COHERE
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.server.testing.fake_speech import fake_speech

ONE = FakeOptions(max_running=1, max_waiting=0, retry_after_s=9)
BODY = {"prompt": "abcd", "max_tokens": 4, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "a"}]
FIELDS: dict[str, dict[str, Any]] = {
    "/generative_scoring": {"query": "a", "items": ["b"], "label_token_ids": [5]},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/chat/completions/batch": {"messages": [MESSAGES]},
    "/v1/completions": BODY,
    "/classify": {"input": "a"},
    "/pooling": {"input": "a"},
    "/rerank": {"query": "a", "documents": ["b"]},
    "/score": {"queries": "a", "documents": ["b"]},
    "/v1/embeddings": {"input": "a"},
    "/v1/media/embeddings": {"input": [{"type": "image_url", "image_url": "data:;base64,eA=="}]},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": ["b"]},
    "/v2/chat": {"messages": MESSAGES},
    "/cohere/v2/chat": {"messages": MESSAGES},
    "/v2/embed": {"texts": ["a"]},
    "/v2/rerank": {"query": "a", "documents": ["b"]},
    "/inference/v1/generate": {"token_ids": [1, 2], "sampling_params": {"max_tokens": 4}},
    "/invocations": BODY,
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 4, "model": "fake"},
    "/v1/responses": {"input": "a"},
    "/v1/systemone": {"state": "a", "questions": {"q": {"type": "score", "criteria": ["b", "c"]}}},
    "/v1/audio/transcriptions": {"language": "en", "max_completion_tokens": "4"},
    "/v1/audio/translations": {"language": "de", "max_completion_tokens": "4"},
}
"""A request of each route that takes a place in the queue."""
KEYS = (
    ApiKey.of("k", Caller("web", limits=KeyLimits(requests_per_minute=2, tokens_per_minute=99))),
    ApiKey.of("free", Caller("free")),
)


class CountingRenderer(FakeRenderer):
    """Counts what it is called for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        self.calls += 1
        return super().encode(text, add_special_tokens, parse_special)

    def render_chat(self, *arguments: Any, **options: Any) -> ChatPrompt:
        self.calls += 1
        return super().render_chat(*arguments, **options)


async def post(
    fake: FakeServer, path: str, body: object = BODY, key: str = "free"
) -> httpx.Response:
    headers = {"X-API-Key": key}
    if path.startswith("/v1/audio/"):
        fields = body if isinstance(body, dict) else {}
        return await fake.client.post(path, files={"file": b"a"}, data=fields, headers=headers)
    return await fake.client.post(path, json=body, headers=headers)


async def engine_is(fake: FakeServer, running: int) -> None:
    async with asyncio.timeout(60):
        while fake.engine.stats().num_running != running:
            await asyncio.sleep(0.001)


def while_full(
    check: Callable[[FakeServer, CountingRenderer], Awaitable[None]],
    after: Callable[[FakeServer], Awaitable[None]] | None = None,
    options: FakeOptions = ONE,
    *,
    transcribes: bool = False,
) -> None:
    """Runs `check` while one request has all the room there is, and `after` when it has ended."""
    renderer = CountingRenderer()
    path = "/pooling" if options.pooled_size else "/v1/completions"
    path = "/v1/audio/transcriptions" if transcribes else path
    path = "/v1/media/embeddings" if options.task is Task.MEDIA_EMBED else path

    async def main() -> None:
        speech = fake_speech() if transcribes else None
        async with fake_server(options, keys=KEYS, renderer=renderer, speech=speech) as fake:
            fake.engine.paused = True
            first = asyncio.create_task(post(fake, path, FIELDS[path]))
            await engine_is(fake, 1)
            renderer.calls = 0
            await check(fake, renderer)
            fake.engine.paused = False
            assert (await first).status_code == 200
            if after is not None:
                await after(fake)

    asyncio.run(main())


def test_every_route_that_submits_is_queued() -> None:
    assert {row.path for row in ENDPOINTS if row.queued} == set(FIELDS)
    bodies = (Transport.JSON, Transport.AUDIO_FORM)
    assert all(row.transport in bodies for row in ENDPOINTS if row.queued)


@pytest.mark.parametrize("row", [row for row in ENDPOINTS if row.queued], ids=lambda row: row.name)
def test_a_full_queue_refuses_before_anything_is_rendered(row: Endpoint) -> None:
    options = ONE
    if row.tasks and row.tasks[0].pools:
        options = replace(ONE, pooled_size=1, task=row.tasks[0])

    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        for content in (FIELDS[row.path], "no object"):
            refused = await post(fake, row.path, content)
            assert refused.status_code == 429, refused.text
            assert refused.headers["retry-after"] == "9"
            told = refused.json()
            if row.errors is COHERE:
                assert set(told) == {"message"}
                continue
            kind = "rate_limit_error" if row.errors is ANTHROPIC else "RateLimitError"
            assert told["error"]["type"] == kind
        assert renderer.calls == 0
        assert fake.engine.stats().num_refused == 0, "nothing was submitted"

    async def after(fake: FakeServer) -> None:
        assert (await post(fake, row.path, FIELDS[row.path])).status_code == 200

    while_full(check, after, options, transcribes=Task.TRANSCRIBE in row.tasks)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_requests_that_come_together_are_prepared_for_the_room_there_is(path: str) -> None:
    renderer = CountingRenderer()

    async def main() -> None:
        options = FakeOptions(max_running=2, max_waiting=1, retry_after_s=9)
        async with fake_server(options, keys=KEYS, renderer=renderer, max_unfinished=3) as fake:
            fake.engine.paused = True
            sent = [asyncio.create_task(post(fake, path, FIELDS[path])) for _ in range(20)]
            await engine_is(fake, 2)
            async with asyncio.timeout(60):
                while sum(task.done() for task in sent) < 17:
                    await asyncio.sleep(0.001)
            fake.engine.paused = False
            statuses = [(await task).status_code for task in sent]
            assert sorted(statuses) == [200] * 3 + [429] * 17
            assert renderer.calls <= 3 * 2  # the template, the tokenizer
            assert fake.engine.stats().num_refused == 0

    asyncio.run(main())


def test_requests_that_are_never_submitted_leave_their_room() -> None:
    async def main() -> None:
        async with fake_server(ONE, keys=KEYS, max_unfinished=1) as fake:
            for _ in range(3):
                assert (await post(fake, "/v1/completions", {"prompt": []})).status_code == 400
            left = asyncio.create_task(post(fake, "/v1/completions", "no object"))
            await asyncio.sleep(0)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
            assert (await post(fake, "/v1/completions")).status_code == 200
            fake.engine.paused = True
            first = asyncio.create_task(post(fake, "/v1/completions"))
            await engine_is(fake, 1)
            assert (await post(fake, "/v1/completions")).status_code == 429
            fake.engine.paused = False
            assert (await first).status_code == 200

    asyncio.run(main())


def test_what_needs_no_place_in_the_queue_is_answered() -> None:
    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        for path in ("/tokenize", "/v1/completions/render"):
            assert (await post(fake, path)).status_code == 200
        assert (await fake.client.get("/v1/models", headers={"X-API-Key": "k"})).status_code == 200

    while_full(check)


def test_the_key_comes_first() -> None:
    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        assert (await post(fake, "/v1/completions", key="other")).status_code == 401

    while_full(check)


def test_a_server_that_shuts_down_says_so() -> None:
    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        fake.state.lifecycle.begin_drain()
        refused = await post(fake, "/v1/completions")
        assert refused.status_code == 503 and "shutting down" in refused.text
        assert fake.state.lifecycle.active == 1

    while_full(check)


def test_a_keys_limits_are_not_charged() -> None:
    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        for _ in range(5):
            refused = await post(fake, "/v1/completions", key="k")
            assert refused.json()["error"]["message"].startswith("Too many requests are waiting")

    async def after(fake: FakeServer) -> None:
        first = await post(fake, "/v1/completions", key="k")
        assert first.status_code == 200
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-remaining-tokens"] == "91"  # it was charged 8

    while_full(check, after)


def test_refused_clients_get_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        turns = iter((11, 12))
        monkeypatch.setattr(fake.state.returns, "refused", lambda wait_s: wait_s + next(turns))
        for turn in ("20", "21"):
            refused = await post(fake, "/v1/completions")
            assert refused.headers["retry-after"] == turn

    while_full(check)


def test_refusals_are_counted() -> None:
    async def check(fake: FakeServer, renderer: CountingRenderer) -> None:
        for _ in range(3):
            await post(fake, "/v1/completions", key="k")
        metrics = await fake.client.get("/metrics", headers={"X-API-Key": "k"})
        lines = metrics.text.splitlines()
        assert 'pagemill:requests_turned_away_total{engine="0",model_name="fake"} 3.0' in lines
        by_key = 'http_responses_total{key="web",path="/v1/completions",status="429"} 3.0'
        assert f"pagemill:{by_key}" in lines

    while_full(check)
