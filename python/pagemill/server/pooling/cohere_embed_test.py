"""`/v2/embed`: Cohere's API of embeddings."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.task import Pooled, Task
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.testing.fake_server import FakeServer, fake_server

SIZE = 12
TEXTS = ["ab", "c"]


def run(body: Callable[[FakeServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fake_server(FakeOptions(pooled_size=SIZE)) as server:
            pipeline = server.state.models.resolve(None, ANONYMOUS).model
            pooled = Pooled(task=Task.EMBED, width=SIZE, sizes=())
            pipeline.model = replace(pipeline.model, pooled=pooled)
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post("/v2/embed", json=fields)
    assert response.status_code == status, response.text
    return response.json()


def test_types_of_embeddings() -> None:
    async def body(server: FakeServer) -> None:
        types = ["float", "base64", "binary", "ubinary"]
        got = await post(
            server, texts=TEXTS, model="fake", input_type="search_query", embedding_types=types
        )
        assert got["id"].startswith("embd-") and got["texts"] == TEXTS
        assert got["response_type"] == "embeddings_by_type"
        assert got["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 3}}
        known = await server.client.post("/v1/embeddings", json={"input": TEXTS})
        for index, each in enumerate(known.json()["data"]):
            vector = np.array(each["embedding"], np.float32)
            found = {name: got["embeddings"][name][index] for name in types}
            assert found["float"] == each["embedding"]
            assert np.array_equal(np.frombuffer(base64.b64decode(found["base64"]), "<f4"), vector)
            bits = np.unpackbits(np.array(found["ubinary"], np.uint8))
            assert bits.tolist() == [*(vector > 0).astype(int).tolist(), 0, 0, 0, 0]
            assert [number - 128 for number in found["ubinary"]] == found["binary"]
        assert set((await post(server, texts=TEXTS))["embeddings"]) == {"float"}

    run(body)


def test_inputs_are_texts_in_parts() -> None:
    async def body(server: FakeServer) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        got = await post(server, inputs=[{"content": parts}], output_dimension=4)
        known = await post(server, texts=["ab"])
        assert got["embeddings"]["float"][0] == known["embeddings"]["float"][0][:4]
        assert got["texts"] == ["ab"]

    run(body)


@pytest.mark.parametrize(("truncate", "kept"), [("END", "ab"), ("START", "cd")])
def test_long_texts_are_cut(truncate: str, kept: str) -> None:
    async def body(server: FakeServer) -> None:
        known = (await post(server, texts=[kept]))["embeddings"]
        assert (await post(server, texts=["abcd"], truncate=truncate, max_tokens=2))[
            "embeddings"
        ] == known
        cut = await post(server, texts=["a" * 300], truncate=truncate)
        assert cut["meta"]["billed_units"]["input_tokens"] == 256

    run(body)


def test_refusals() -> None:
    async def body(server: FakeServer) -> None:
        for fields, named in (
            ({}, "texts"),
            ({"texts": []}, "texts"),
            ({"texts": TEXTS, "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "inputs"),
            ({"inputs": [{"content": [{"type": "image_url", "image_url": {}}]}]}, "inputs"),
            ({"images": ["data:image/png;base64,"]}, "images"),
            ({"texts": TEXTS, "embedding_types": ["int8"]}, "embedding_types"),
            ({"texts": TEXTS, "input_type": "x"}, "input_type"),
            ({"texts": TEXTS, "output_dimension": SIZE + 1}, "output_dimension"),
            ({"texts": ["a", "abc"], "truncate": "NONE", "max_tokens": 2}, "texts[1]"),
            ({"texts": ["a" * 300], "truncate": "NONE"}, "texts[0]"),
        ):
            refused = await post(server, 400, **fields)
            assert set(refused) == {"message"} and named in refused["message"], refused

    run(body)
