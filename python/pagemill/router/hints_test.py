"""What the router reads of requests that it passes on."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any

import pytest

from pagemill.config import RouterConfig
from pagemill.render.renderer import ChatPrompt
from pagemill.router import hints
from pagemill.router.fleet import Hint
from pagemill.router.hints import HintReader
from pagemill.server.rendering import Rendering
from pagemill.server.testing.fake_renderer import FakeRenderer

FILE = {"filename": "a.txt", "file_data": base64.b64encode(b"long").decode()}


def hint(path: str, **body: Any) -> Hint:
    async def read() -> Hint:
        config = RouterConfig(server=("http://a",), policy="prefix_aware", model="m")
        reader = HintReader(config, Rendering(FakeRenderer(), 256))
        return await reader.read(path, {}, json.dumps(body).encode())

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("path", "field", "part"),
    [
        ("/v1/chat/completions", "messages", {"type": "file", "file": FILE}),
        ("/v1/responses", "input", {"type": "input_file", **FILE}),
    ],
)
def test_files_of_text_are_part_of_the_prompt(path: str, field: str, part: Any) -> None:
    found = hint(path, **{field: [{"role": "user", "content": [part]}]})
    assert b"a.txt" in bytes(found.token_ids) and b"long" in bytes(found.token_ids)


def test_stored_files_are_not_known() -> None:
    part = {"type": "file", "file": {"file_id": "file-a"}}
    found = hint("/v1/chat/completions", messages=[{"role": "user", "content": [part]}])
    assert found == Hint()


def test_documents_are_part_of_the_prompt() -> None:
    source = {"type": "base64", "data": FILE["file_data"]}
    block = {"type": "document", "source": source}
    messages = [{"role": "user", "content": [block]}]
    found = hint("/v1/messages", messages=messages, max_tokens=2)
    assert b"long" in bytes(found.token_ids)
    source["data"] = base64.b64encode(b"%PDF-1.7").decode()  # servers read it
    assert hint("/v1/messages", messages=messages, max_tokens=2) == Hint()


class Blocked(FakeRenderer):
    """Renders no chat before `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.release = threading.Event(), threading.Event()

    def render_chat(self, *arguments: Any, **options: Any) -> ChatPrompt:
        self.begun.set()
        assert self.release.wait(60)
        return super().render_chat(*arguments, **options)


def test_a_prompt_that_takes_long_gives_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Blocked()
    body = json.dumps({"messages": [{"role": "user", "content": "a"}]}).encode()

    async def read() -> None:
        config = RouterConfig(server=("http://a",), policy="prefix_aware", model="m")
        reader = HintReader(config, Rendering(renderer, 256))
        monkeypatch.setattr(hints, "_MAX_WAIT_S", 0)
        assert await reader.read("/v1/chat/completions", {}, body, "a") == Hint()
        monkeypatch.setattr(hints, "_MAX_WAIT_S", 60)
        waiting = asyncio.ensure_future(reader.read("/v1/chat/completions", {}, body, "b"))
        assert await asyncio.to_thread(renderer.begun.wait, 60)
        waiting.cancel()  # its client has left
        with pytest.raises(asyncio.CancelledError):
            await waiting
        renderer.release.set()
        assert (await reader.read("/v1/chat/completions", {}, body, "a")).token_ids

    try:
        asyncio.run(read())
    finally:
        renderer.release.set()


def test_bodies_that_are_nested_too_deeply_have_no_session() -> None:
    config = RouterConfig(server=("http://a",), policy="session")
    body = b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert asyncio.run(HintReader(config, None).read("/v1/completions", {}, body)) == Hint()
