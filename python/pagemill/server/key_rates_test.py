"""What an API key may take: requests and tokens, requests at a time, models, priority."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.caller import Caller
from pagemill.server.key_limits import KeyLimits
from pagemill.server.key_rates import Allowance, KeyRates
from pagemill.server.keys import ApiKey
from pagemill.server.records.record import RequestRecord, Work
from pagemill.server.responses.store import create
from pagemill.server.testing.fake_server import fake_server


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Route:
    """Answers when it may, and has used `tokens`."""

    def __init__(self) -> None:
        self.tokens = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.num_begun = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_begun += 1
        await self.may_end.wait()
        record: RequestRecord = scope["state"]["record"]
        record.worked(Work("m", prompt_tokens=self.tokens))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Sender:
    """Requests of keys through the layer."""

    def __init__(self) -> None:
        self.clock, self.route = Clock(), Route()
        self._layer = KeyRates(self.route, self.clock)

    async def __call__(self, limits: KeyLimits, key: str = "k", method: str = "POST") -> Any:
        """The status and headers of the answer."""
        found: dict[str, Any] = {}

        async def receive() -> Any:
            raise AssertionError("the body is not read")

        async def send(message: Any) -> None:
            found.update(message)

        state = {
            "caller": Caller(key, limits=limits),
            "record": RequestRecord("POST", "/v1/completions"),
        }
        scope = {"type": "http", "method": method, "path": "/v1/completions", "state": state}
        await self._layer(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in found["headers"]}
        return found["status"], headers


def test_an_allowance_comes_back_over_a_minute() -> None:
    clock = Clock()
    allowance = Allowance(60, clock)
    allowance.take(90)
    assert allowance.left == -30 and allowance.seconds_until(1) == 31
    clock.now += 40
    assert allowance.left == 10 and allowance.seconds_until(5) == 0
    clock.now += 1000
    assert allowance.left == 60


def test_requests_per_minute() -> None:
    async def body() -> None:
        send = Sender()
        limits = KeyLimits(requests_per_minute=3)
        for left in (2, 1, 0):
            status, headers = await send(limits)
            assert status == 200
            assert headers["x-ratelimit-limit-requests"] == "3"
            assert headers["x-ratelimit-remaining-requests"] == str(left)
        status, headers = await send(limits)
        assert status == 429 and headers["retry-after"] == "20"
        assert headers["x-ratelimit-reset-requests"] == "60.000s"
        assert (await send(limits, key="other"))[0] == 200
        assert (await send(limits, method="GET"))[0] == 200
        send.clock.now += 20
        assert (await send(limits))[0] == 200
        assert send.route.num_begun == 6

    asyncio.run(body())


def test_tokens_per_minute() -> None:
    async def body() -> None:
        send = Sender()
        send.route.tokens = 100
        limits = KeyLimits(tokens_per_minute=60)
        status, headers = await send(limits)
        assert status == 200 and headers["x-ratelimit-remaining-tokens"] == "0"
        status, headers = await send(limits)  # overdrawn by 40: 41 seconds until there is one
        assert status == 429 and headers["retry-after"] == "41"
        send.clock.now += 41
        assert (await send(limits))[0] == 200

    asyncio.run(body())


def test_requests_at_a_time() -> None:
    async def body() -> None:
        send = Sender()
        limits = KeyLimits(concurrency=2)
        send.route.may_end.clear()
        running = [asyncio.create_task(send(limits)) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await send(limits))[0] == 429
        send.route.may_end.set()
        assert [status for status, _ in await asyncio.gather(*running)] == [200, 200]
        assert (await send(limits))[0] == 200

    asyncio.run(body())


def test_changed_limits_hold_at_once() -> None:
    async def body() -> None:
        send = Sender()
        assert (await send(KeyLimits(requests_per_minute=1)))[0] == 200
        assert (await send(KeyLimits(requests_per_minute=1)))[0] == 429
        assert (await send(KeyLimits(requests_per_minute=2)))[0] == 200
        assert (await send(KeyLimits()))[0] == 200

    asyncio.run(body())


def key(name: str, **limits: Any) -> ApiKey:
    return ApiKey.of(name, Caller(name, limits=KeyLimits(**limits)))


def complete(client: httpx.AsyncClient, key: str, **fields: Any) -> Any:
    body = {"prompt": "abc", "max_tokens": 7, "ignore_eos": True, **fields}
    return client.post("/v1/completions", json=body, headers={"x-api-key": key})


def test_over_http() -> None:
    keys = [
        key("few", requests_per_minute=1),
        key("brief", tokens_per_minute=10),
        key("alias", models=("alias",)),
        key("behind", priority=5),
    ]

    async def body() -> None:
        async with fake_server(FakeOptions(uses_priority=True), keys=keys) as server:
            client = server.client
            assert (await complete(client, "few")).status_code == 200
            refused = await complete(client, "few")
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 50
            assert "requests per minute" in refused.json()["error"]["message"]
            assert (await complete(client, "brief")).status_code == 200
            assert "tokens per minute" in (await complete(client, "brief")).text
            assert (await complete(client, "alias", model="alias")).status_code == 200
            for fields in ({}, {"model": "fake"}):
                refused = await complete(client, "alias", **fields)
                assert (refused.status_code, refused.json()["error"]["param"]) == (403, "model")
            models = await client.get("/v1/models", headers={"x-api-key": "alias"})
            assert [card["id"] for card in models.json()["data"]] == ["alias"]
            for asked, given in ((None, 5), (9, 9), (-3, 5)):
                answer = await complete(client, "behind", priority=asked)
                assert answer.status_code == 200, answer.text
                assert server.engine.submitted[-1].request.priority == given

    asyncio.run(body())


def test_work_in_the_background_is_charged(tmp_path: Path) -> None:
    store = str(tmp_path / "responses.sqlite3")
    create(store)
    headers = {"x-api-key": "brief"}
    request = {"input": "abcdefghijklmnop", "background": True, "max_output_tokens": 4}

    async def body() -> None:
        keys = [key("brief", tokens_per_minute=10)]
        async with fake_server(FakeOptions(), keys=keys, response_store=store) as server:
            answer = await server.client.post("/v1/responses", json=request, headers=headers)
            route = f"/v1/responses/{answer.json()['id']}"
            while answer.json()["status"] in ("queued", "in_progress"):
                await asyncio.sleep(0.01)
                answer = await server.client.get(route, headers=headers)
            assert answer.json()["status"] in ("completed", "incomplete")
            assert (await complete(server.client, "brief")).status_code == 429

    asyncio.run(body())
