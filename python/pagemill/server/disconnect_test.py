"""A client that goes away, at any moment, leaves nothing running."""

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.testing.fake_server import FakeServer, fake_server


async def disconnect(server: FakeServer, body: dict[str, Any], after: asyncio.Event) -> int:
    """Posts `body` to /v1/completions and disconnects once `after` is set; returns body bytes."""
    received = 0
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": msgspec.json.encode(body), "more_body": False}
        await after.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal received
        received += len(message.get("body", b""))
        if received > 500:
            after.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "raw_path": b"/v1/completions",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"content-type", b"application/json")],
        "http_version": "1.1",
    }
    await asyncio.wait_for(server.app(scope, receive, send), 60)
    return received


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_goes_away_aborts_its_request(streamed: bool) -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(step_s=0.01)) as server:
            gone = asyncio.Event()
            payload = {"prompt": ["a", "b"], "n": 2, "max_tokens": 200, "stream": streamed}
            request = asyncio.create_task(disconnect(server, payload, gone))
            if not streamed:
                async with asyncio.timeout(60):
                    while server.engine.stats().num_running < 4:
                        await asyncio.sleep(0.001)
                gone.set()
            await request
            assert server.async_engine.num_live == 0
            assert server.engine.stats().num_running == 0
            assert server.engine.stats().finished_abort == 4
            assert server.state.lifecycle.active == 0
            text = (await server.client.get("/metrics")).text
            assert 'finished_reason="abort",model_name="fake"} 4.0' in text

    asyncio.run(body())


def test_a_client_that_is_gone_before_the_first_token() -> None:
    async def body() -> None:
        engine_options = FakeOptions(step_s=0.05)
        async with fake_server(engine_options) as server:
            engine: FakeEngine = server.engine
            gone = asyncio.Event()
            gone.set()
            for streamed in (False, True):
                await disconnect(server, {"prompt": "a", "stream": streamed}, gone)
                assert server.async_engine.num_live == 0
            assert engine.stats().num_running == 0

    asyncio.run(body())
