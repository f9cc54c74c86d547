"""Tests of pagemill.server.rendering: what is refused untokenized, and who waits for whom."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from pagemill.engine.fake_engine import FakeOptions
from pagemill.render.renderer import ChatPrompt
from pagemill.server import rendering
from pagemill.server.errors import ApiError
from pagemill.server.fake_renderer import FakeRenderer
from pagemill.server.fake_server import FakeServer, fake_server
from pagemill.server.rendering import INLINE_CHARS, Rendering


class _Counting(FakeRenderer):
    """Knows how many characters it was given to tokenize."""

    def __init__(self) -> None:
        self.chars = 0

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Counts."""
        self.chars += len(text)
        return super().encode(text, add_special_tokens, parse_special)


async def _here() -> Any:
    await asyncio.Event().wait()


def _run(test: Callable[[Rendering, _Counting], Awaitable[None]], max_model_len: int) -> None:
    async def body() -> None:
        renderer = _Counting()
        await asyncio.wait_for(test(Rendering(renderer, max_model_len), renderer), 20)

    asyncio.run(body())


def test_what_cannot_fit_is_not_tokenized() -> None:
    long = "x" * (2 * INLINE_CHARS)

    async def body(texts: Rendering, renderer: _Counting) -> None:
        with pytest.raises(ApiError) as error:
            await texts.token_ids(["a", long + "y"], True, True, "prompt", _here)
        with pytest.raises(ApiError):
            await texts.chat(lambda: ChatPrompt(long + "y"), False, _here)
        assert renderer.chars == 0
        assert (error.value.status, error.value.param) == (400, "prompt")
        assert f"maximum context length is {len(long)} tokens" in error.value.message
        assert await texts.token_ids([long, [1, 2]], True, True, "prompt", _here) == [
            list(long.encode()),
            [1, 2],
        ]

    _run(body, len(long))


@pytest.mark.parametrize("route", ["completions", "chat/completions", "embeddings"])
def test_every_route_refuses_it(route: str) -> None:
    text = "x" * (INLINE_CHARS + 1)
    body = {
        "completions": {"prompt": ["a", text], "truncate_prompt_tokens": 5},
        "chat/completions": {"messages": [{"role": "user", "content": text}]},
        "embeddings": {"input": [text]},
    }[route]

    async def check(server: FakeServer) -> None:
        response = await server.client.post(f"/v1/{route}", json=body)
        assert response.status_code == 400
        assert "maximum context length is 256 tokens" in response.text
        assert "is not tokenized" in response.text

    async def run() -> None:
        options = FakeOptions(pooled_size=4 if route == "embeddings" else 0)
        async with fake_server(options) as server:
            await check(server)

    asyncio.run(run())


def test_renders_wait_in_a_bounded_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MAX_RENDERS", 8)
    release = threading.Event()

    def slow() -> ChatPrompt:
        release.wait(10)
        return ChatPrompt("a")

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    async def body(texts: Rendering, renderer: _Counting) -> None:
        del renderer
        busy = [asyncio.create_task(texts.chat(slow, False, _here)) for _ in range(7)]
        await asyncio.sleep(0.05)
        with pytest.raises(ClientDisconnect):
            await texts.chat(slow, False, gone)
        busy.append(asyncio.create_task(texts.chat(slow, False, _here)))
        await asyncio.sleep(0.05)
        with pytest.raises(ApiError) as error:
            await texts.chat(slow, False, _here)
        assert error.value.status == 429
        release.set()
        assert await asyncio.gather(*busy) == [[97]] * 8

    try:
        _run(body, 256)
    finally:
        release.set()
