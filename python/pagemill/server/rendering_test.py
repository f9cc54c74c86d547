"""Tests of pagemill.server.rendering: what is refused untokenized, and which request waits."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pagemill.config.model import ModelConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.renderer import ChatPrompt
from pagemill.render.template_process import TemplateProcesses
from pagemill.render.template_wire import RenderRequest, Setup
from pagemill.server import rendering
from pagemill.server.errors import ApiError
from pagemill.server.rendering import (
    INLINE_CHARS,
    TRIM_CHARS,
    Rendering,
    open_renderer,
    open_vocabulary,
)
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server


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


def _run(test: Callable[[Rendering, _Counting], Awaitable[None]], max_model_len: int) -> None:
    async def body() -> None:
        renderer = _Counting()
        await asyncio.wait_for(test(Rendering(renderer, max_model_len), renderer), 60)

    asyncio.run(body())


def test_what_cannot_fit_is_not_tokenized() -> None:
    long = "x" * (2 * INLINE_CHARS)

    async def body(texts: Rendering, renderer: _Counting) -> None:
        with pytest.raises(ApiError) as error:
            await texts.prompts(["a", long + "y"], True, True, "prompt")
        with pytest.raises(ApiError):
            await texts.chat(lambda: ChatPrompt(long + "y"), False)
        assert renderer.chars == 0
        assert (error.value.status, error.value.param) == (400, "prompt")
        assert f"maximum context length is {len(long)} tokens" in error.value.message
        prompts = await texts.prompts([long, [1, 2]], True, True, "prompt")
        assert [bytes(prompt.token_ids.tolist()) for prompt in prompts] == [long.encode(), b"\1\2"]
        with pytest.raises(ApiError, match="does not fit 32 bits"):
            await texts.prompts([[2**31]], True, True, "prompt")

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


def test_embeddings_of_long_texts_keep_the_head() -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            payload = {"input": ["ab" * INLINE_CHARS], "truncate_prompt_tokens": -1}
            response = await server.client.post("/v1/embeddings", json=payload)
            assert response.status_code == 200, response.text
            assert response.json()["usage"]["prompt_tokens"] == 256

    asyncio.run(body())


def test_others_are_served_while_a_template_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = TemplateProcesses()
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    source = (
        "{% if messages[0].content == 'bomb' %}" + loop + "{% endif %}{{ messages[0].content }}"
    )
    processes.compile(Setup({"default": source}, {}, [], max_cpu_s=0.5))

    def render(_: object, messages: Sequence[Mapping[str, Any]], *options: Any) -> ChatPrompt:
        del options
        request = RenderRequest(
            messages=list(messages),
            tools=None,
            add_generation_prompt=True,
            continue_final_message=False,
            variables={},
            trust_control_tokens=False,
        )
        return ChatPrompt(processes.render(request).text)

    monkeypatch.setattr(FakeRenderer, "render_chat", render)

    async def chat(server: FakeServer, content: str) -> tuple[int, str]:
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        response = await server.client.post("/v1/chat/completions", json=body)
        return response.status_code, response.text

    async def body() -> None:
        async with fake_server() as server:
            bombs = [asyncio.create_task(chat(server, "bomb")) for _ in range(2)]
            answered = 0
            while not any(bomb.done() for bomb in bombs):
                assert (await server.client.get("/health")).status_code == 200
                answered += 1
                await asyncio.sleep(0.01)
            assert answered > 5  # in half a second of processor time
            for bomb in bombs:
                status, text = await bomb
                assert status == 400
                assert "The chat template took too much processor time." in text
            assert (await chat(server, "hi"))[0] == 200

    try:
        asyncio.run(body())
    finally:
        processes.close()


def test_completions_say_whether_control_tokens_count(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bool] = []

    def encode(_: object, text: str, special: bool, parse_special: bool) -> list[int]:
        parsed.append(parse_special)
        return list(text.encode())

    monkeypatch.setattr(FakeRenderer, "encode", encode)

    async def body() -> None:
        async with fake_server() as server:
            for field in ({}, {"parse_special": False}, {"parse_special": True}):
                payload = {"prompt": "a", "max_tokens": 1, **field}
                assert (
                    await server.client.post("/v1/completions", json=payload)
                ).status_code == 200

    asyncio.run(body())
    assert parsed == [True, False, True]


def test_memory_is_returned_after_large_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = threading.Event()
    monkeypatch.setattr(rendering, "_TRIM_AFTER_S", 0.0)
    monkeypatch.setattr(rendering, "_return_free_memory", returned.set)

    async def body(texts: Rendering, renderer: _Counting) -> None:
        del renderer
        await texts.prompts(["x" * 5000], True, True, "prompt")
        await asyncio.sleep(0.05)
        assert not returned.is_set()
        with pytest.raises(ApiError):
            await texts.prompts(["x" * TRIM_CHARS], True, True, "prompt")
        while not returned.is_set():
            await asyncio.sleep(0.01)

    _run(body, 10_000)


def test_renders_wait_in_a_bounded_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MAX_RENDERS", 8)
    release = threading.Event()

    def slow() -> ChatPrompt:
        release.wait(60)
        return ChatPrompt("a")

    async def body(texts: Rendering, renderer: _Counting) -> None:
        del renderer
        busy = [asyncio.create_task(texts.chat(slow, False)) for _ in range(7)]
        await asyncio.sleep(0.05)
        cancelled = asyncio.create_task(texts.chat(slow, False))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        busy.append(asyncio.create_task(texts.chat(slow, False)))
        await asyncio.sleep(0.05)
        with pytest.raises(ApiError) as error:
            await texts.chat(slow, False)
        assert error.value.status == 429
        release.set()
        prompts = await asyncio.gather(*busy)
        assert [prompt.token_ids.tolist() for prompt in prompts] == [[97]] * 8

    try:
        _run(body, 256)
    finally:
        release.set()


def test_tenants_share_the_queue_of_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MAX_RENDERS", 8)
    release, done = threading.Event(), threading.Event()

    def slow() -> ChatPrompt:
        release.wait(60)
        return ChatPrompt("a")

    def quick() -> ChatPrompt:
        done.set()
        return ChatPrompt("b")

    async def body(texts: Rendering, renderer: _Counting) -> None:
        del renderer
        busy = [asyncio.create_task(texts.chat(slow, False, "greedy")) for _ in range(8)]
        await asyncio.sleep(0)  # each has its place
        prompt = await texts.chat(quick, False, "modest")
        assert prompt.token_ids.tolist() == [98] and done.is_set(), "while all threads are busy"
        with pytest.raises(ApiError, match="Too many chat requests"):
            await busy.pop()
        release.set()
        assert len(await asyncio.gather(*busy)) == 7

    try:
        _run(body, 256)
    finally:
        release.set()


@dataclass
class Source:
    """A model's folder."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    gguf: None = None


@pytest.mark.parametrize("mode", ["auto", "grok2"])
def test_grammars_have_the_renderers_vocabulary(tmp_path: Path, mode: str) -> None:
    pieces = [{"bytes": [byte], "token": 2 + byte} for byte in range(256)]
    special = [{"bytes": list(name), "token": at} for at, name in enumerate((b"<|eos|>", b"<s>"))]
    content = {"regular_tokens": pieces, "special_tokens": special, "word_split": "V1"}
    (tmp_path / "tokenizer.tok.json").write_text(json.dumps(content))
    source, config = Source(tmp_path), ModelConfig(tokenizer_mode=mode, cache_dir=str(tmp_path))
    renderer = open_renderer(source, config)
    vocabulary = open_vocabulary(source, config, 320, ())
    assert vocabulary.eos_token_ids == renderer.eos_token_ids == (0,)
    assert vocabulary.tokenizer.token_bytes[2 + ord("a")] == renderer.token_bytes(2 + ord("a"))
