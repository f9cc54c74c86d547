"""What the router reads of requests that it passes on."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from pagemill.config import RouterConfig
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
