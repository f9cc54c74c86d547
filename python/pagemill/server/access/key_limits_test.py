"""What the requests of a key with limits get from the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.testing.fake_server import FakeServer, fake_server

BODY = {"prompt": "abcd", "max_tokens": 4, "ignore_eos": True}


def limited(
    body: Callable[[FakeServer], Awaitable[None]],
    options: FakeOptions | None = None,
    **caller: Any,
) -> None:
    """Runs `body` with a server whose key "k" belongs to a caller with these fields."""
    keys = (ApiKey.of("k", Caller("web", **caller)), ApiKey.of("free", Caller("free")))

    async def main() -> None:
        async with fake_server(options, keys=keys) as fake:
            await body(fake)
            assert (await post(fake, BODY, key="free")).status_code == 200

    asyncio.run(main())


async def post(
    fake: FakeServer, body: object, path: str = "/v1/completions", key: str = "k"
) -> httpx.Response:
    return await fake.client.post(path, json=body, headers={"X-API-Key": key})


async def stream(fake: FakeServer, body: dict[str, Any]) -> httpx.Response:
    return await post(fake, {**body, "stream": True})


def test_requests_are_refused_before_their_body_is_read() -> None:
    async def check(fake: FakeServer) -> None:
        first = await post(fake, BODY)
        assert first.status_code == 200
        assert first.headers["x-ratelimit-remaining-requests"] == "0"
        second = await post(fake, BODY)
        assert second.status_code == 429 and second.headers["retry-after"] == "60"
        assert second.headers["x-ratelimit-limit-requests"] == "1"
        assert second.json()["error"]["type"] == "RateLimitError"
        unread = await fake.client.post(
            "/v1/messages", content=b"no JSON", headers={"X-API-Key": "k"}
        )
        assert unread.status_code == 429
        assert unread.json()["error"]["type"] == "rate_limit_error"
        models = await fake.client.get("/v1/models", headers={"X-API-Key": "k"})
        assert models.status_code == 200 and "x-ratelimit-limit-requests" not in models.headers

    limited(check, limits=KeyLimits(requests_per_minute=1))


def test_tokens_are_prompt_and_output() -> None:
    async def check(fake: FakeServer) -> None:
        first = await post(fake, {**BODY, "max_tokens": 100, "ignore_eos": False, "stop": "a"})
        used = first.json()["usage"]["total_tokens"]
        assert used < 104
        before = await post(fake, {**BODY, "n": 2, "prompt": ["abcd", "efgh"]})
        assert first.headers["x-ratelimit-limit-tokens"] == "1000"
        assert 1000 - used - 24 <= int(before.headers["x-ratelimit-remaining-tokens"]) < 1000
        refused = await post(fake, {**BODY, "n": 10, "max_tokens": 200})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert "tokens_per_minute" in refused.json()["error"]["message"]
        streamed = await stream(fake, BODY)
        assert streamed.status_code == 200
        assert int(streamed.headers["x-ratelimit-remaining-tokens"]) < 1000

    limited(check, limits=KeyLimits(tokens_per_minute=1000))


def test_embeddings_are_charged() -> None:
    async def check(fake: FakeServer) -> None:
        body = {"input": ["abcd", "efgh"]}
        first = await post(fake, body, "/v1/embeddings")
        assert first.status_code == 200
        assert first.headers["x-ratelimit-remaining-tokens"] == "2"
        assert (await post(fake, body, "/v1/embeddings")).status_code == 429

    keys = (ApiKey.of("k", Caller("web", limits=KeyLimits(tokens_per_minute=10))),)

    async def main() -> None:
        async with fake_server(FakeOptions(pooled_size=4), keys=keys) as fake:
            await check(fake)

    asyncio.run(main())


def test_requests_in_progress() -> None:
    async def check(fake: FakeServer) -> None:
        long = {**BODY, "max_tokens": 200}
        answers = await asyncio.gather(*[post(fake, long) for _ in range(5)])
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
        answers = await asyncio.gather(*[stream(fake, long) for _ in range(2)])
        assert [answer.status_code for answer in answers] == [200, 200]

    limited(check, FakeOptions(step_s=0.001), limits=KeyLimits(concurrency=2))


def test_a_refused_request_leaves() -> None:
    async def check(fake: FakeServer) -> None:
        for _ in range(3):
            assert (await post(fake, {**BODY, "temperature": -1})).status_code == 400
        assert (await post(fake, BODY)).status_code == 200

    limited(check, limits=KeyLimits(concurrency=1))


def test_models() -> None:
    async def check(fake: FakeServer) -> None:
        allowed = await post(fake, {**BODY, "model": "alias"})
        assert allowed.status_code == 200
        assert (await post(fake, BODY)).status_code == 200
        other = await post(fake, {**BODY, "model": "fake"})
        missing = await post(fake, {**BODY, "model": "nope"})
        assert other.status_code == missing.status_code == 404
        names = other.json()["error"]["message"], missing.json()["error"]["message"]
        assert names[0].replace("fake", "nope") == names[1]
        listed = await fake.client.get("/v1/models", headers={"X-API-Key": "k"})
        assert [model["id"] for model in listed.json()["data"]] == ["alias"]

    limited(check, models=frozenset({"alias", "other"}))


def test_a_key_without_a_model() -> None:
    async def check(fake: FakeServer) -> None:
        assert (await post(fake, BODY)).status_code == 404
        tokens = await post(fake, {"prompt": "abcd"}, "/tokenize")
        assert tokens.status_code == 404

    limited(check, models=frozenset[str]())


def test_a_keys_priority_can_only_be_lowered() -> None:
    caller = Caller("web", priority=5)
    assert [caller.priority_of(number) for number in (-9, 0, 3)] == [5, 5, 8]
    assert Caller("web", priority=-5).priority_of(0) == -5
    assert Caller("web").priority_of(-9) == -9
