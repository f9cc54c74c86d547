"""`system_fingerprint`: in every answer of chats and completions, and what it depends on."""

from __future__ import annotations

import asyncio
import json

from pagemill.config import EngineConfig, build
from pagemill.server.fingerprint import system_fingerprint
from pagemill.server.testing.fake_server import fake_server


def test_what_it_depends_on() -> None:
    def of(model: str = "/a/model.gguf", **options: object) -> str:
        return system_fingerprint(build(EngineConfig, options), model)

    assert of() == of() == of("/b/model.gguf") == of(served_model_name=["other"])
    assert of().startswith("fp_") and len(of()) == 19
    others = {of("/a/other.gguf"), of(block_size=32), of(scheduling_policy="fair")}
    assert len(others | {of()}) == 4


def test_answers_have_it() -> None:
    async def body() -> None:
        async with fake_server() as server:
            for path, fields in (
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                ("/v1/completions", {"prompt": "a"}),
            ):
                got = await server.client.post(path, json={**fields, "max_tokens": 3})
                assert got.json()["system_fingerprint"] == "fp_fake"
                streamed = {**fields, "max_tokens": 3, "stream": True}
                got = await server.client.post(path, json=streamed)
                events = [line.removeprefix("data: ") for line in got.text.split("\n\n")[:-2]]
                found = {json.loads(event)["system_fingerprint"] for event in events}
                assert found == {"fp_fake"}

    asyncio.run(body())
