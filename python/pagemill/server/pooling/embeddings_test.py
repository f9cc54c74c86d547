"""`/v1/embeddings`: chats, shorter vectors, types of elements."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.task import Pooled, Task
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.element_types import element_type
from pagemill.server.pooling.binary import MAX_DESCRIBED_INPUTS
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.weights.errors import WeightsError
from pagemill.weights.pooling import matryoshka_sizes

SIZE = 8
MESSAGES = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]


def run(body: Callable[[FakeServer], Awaitable[None]], **pooled_fields: Any) -> None:
    async def main() -> None:
        async with fake_server(FakeOptions(pooled_size=SIZE)) as server:
            pipeline = server.state.models.resolve(None, ANONYMOUS).model
            pooled = Pooled(task=Task.EMBED, width=SIZE, **pooled_fields)
            pipeline.model = replace(pipeline.model, pooled=pooled)
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post("/v1/embeddings", json=fields)
    assert response.status_code == status, response.text
    return response.json()


async def vector(server: FakeServer, **fields: Any) -> np.ndarray:
    return np.array((await post(server, **fields))["data"][0]["embedding"])


def test_a_chat_is_its_rendering() -> None:
    async def body(server: FakeServer) -> None:
        text = "system:a\nuser:b"
        chat = await post(server, messages=MESSAGES)
        assert chat["usage"]["prompt_tokens"] == len(text)
        known = await vector(server, input=text)
        assert np.array_equal(await vector(server, messages=MESSAGES), known)
        asked = await vector(server, messages=MESSAGES, add_generation_prompt=True)
        assert np.array_equal(asked, await vector(server, input=text + "\nassistant:"))
        short = await post(server, messages=MESSAGES, truncate_prompt_tokens=3)
        assert short["usage"]["prompt_tokens"] == 3
        for fields, param in (
            ({"messages": MESSAGES, "input": "a"}, "messages"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "user", "content": "a" * 300}]}, "messages"),
            ({"messages": MESSAGES, "continue_final_message": True,
              "add_generation_prompt": True}, "continue_final_message"),
            ({"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}},
             "chat_template_kwargs"),
            ({}, "input"),
        ):  # fmt: skip
            assert (await post(server, 400, **fields))["error"]["param"] == param

    run(body)


@pytest.mark.parametrize("normalizes", [False, True])
def test_shorter_vectors(normalizes: bool) -> None:
    async def body(server: FakeServer) -> None:
        full = await vector(server, input="a")
        for size in (1, 5, SIZE):
            short = await vector(server, input="a", dimensions=size)
            scale = np.linalg.norm(full[:size]) if normalizes and size < SIZE else 1
            # Rounding of a division in float32.
            assert np.allclose(short, full[:size] / scale, rtol=1e-6)
        for size in (SIZE + 1, 1000):
            # It is refused before the input is, which would not fit.
            error = await post(server, 400, input="a" * 50_000, dimensions=size)
            assert error["error"]["param"] == "dimensions"

    run(body, sizes=(), normalizes=normalizes)


def test_the_models_own_sizes() -> None:
    async def body(server: FakeServer) -> None:
        assert len(await vector(server, input="a", dimensions=4)) == 4
        assert len(await vector(server, input="a", dimensions=SIZE)) == SIZE
        error = await post(server, 400, input="a", dimensions=3)
        assert "2, 4" in error["error"]["message"]

    run(body, sizes=(2, 4))


def test_a_model_that_is_not_made_for_it() -> None:
    async def body(server: FakeServer) -> None:
        error = await post(server, 400, input="a", dimensions=4)
        assert "cannot be shortened" in error["error"]["message"]

    run(body)


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ({}, None),
        ({"is_matryoshka": False}, None),
        ({"is_matryoshka": True}, ()),
        ({"matryoshka_dimensions": [64, 32, 64]}, (32, 64)),
    ],
)
def test_sizes_in_a_configuration(config: dict[str, Any], sizes: Any) -> None:
    assert matryoshka_sizes(config) == sizes


@pytest.mark.parametrize("bad", [5, [], ["x"], [0], [True], {"a": 1}])
def test_sizes_that_are_none(bad: Any) -> None:
    with pytest.raises(WeightsError, match="matryoshka_dimensions"):
        matryoshka_sizes({"matryoshka_dimensions": bad})
    with pytest.raises(WeightsError, match="is_matryoshka"):
        matryoshka_sizes({"is_matryoshka": bad})


def test_types_of_elements() -> None:
    async def body(server: FakeServer) -> None:
        full = (await vector(server, input="a")).astype(np.float32)
        for name, stored in (("float32", "f4"), ("float16", "f2"), ("bfloat16", "u2")):
            values = await vector(server, input="a", embed_dtype=name)
            # Half a unit in the last place of 8 bits, the fewest.
            assert np.allclose(values, full, rtol=2**-8)
            for endianness, order in (("native", "="), ("little", "<"), ("big", ">")):
                fields = {"embed_dtype": name, "endianness": endianness}
                answer = await post(server, input="a", encoding_format="base64", **fields)
                content = base64.b64decode(answer["data"][0]["embedding"])
                found = np.frombuffer(content, order + stored)
                if name == "bfloat16":
                    found = (found.astype(np.uint32) << 16).view(np.float32)
                assert np.array_equal(found.astype(np.float64), values)

    run(body)


@pytest.mark.parametrize(
    ("name", "numbers", "codes"),
    [
        # Halves of steps go to the even code; 448 is the largest; the least step is 2^-9.
        ("fp8_e4m3", [1, 1.0625, 1.1875, -1.07, 448, 1e9, 2**-9, 2**-10, -0.0, np.nan],
         [0x38, 0x38, 0x3A, 0xB9, 0x7E, 0x7E, 0x01, 0x00, 0x80, 0x7F]),
        # 57344 is the largest; 61440 is half a step more.
        ("fp8_e5m2", [1, 1.125, 1.375, -1.13, 61439, 61440, 2**-16, np.inf, -0.0, np.nan],
         [0x3C, 0x3C, 0x3E, 0xBD, 0x7B, 0x7C, 0x01, 0x7C, 0x80, 0x7F]),
    ],
)  # fmt: skip
def test_eight_bits_are_rounded_as_torch_does(name: Any, numbers: Any, codes: Any) -> None:
    elements = element_type(name)
    content = elements.content(np.array(numbers, np.float32), is_big=True)
    assert list(content) == codes
    # What a code stands for has that code.
    every = np.arange(0x80, dtype=np.uint8)
    floats = elements.floats(every)
    kept = every[~np.isnan(floats)]
    assert np.array_equal(elements.stored(floats[: len(kept)]), kept)


def test_bytes() -> None:
    async def body(server: FakeServer) -> None:
        inputs = ["a", "b", "c"]
        known = await post(server, input=inputs)
        for name, stored in (("float32", ">f4"), ("fp8_e4m3", "u1")):
            fields = {"input": inputs, "embed_dtype": name, "endianness": "big"}
            whole = await server.client.post(
                "/v1/embeddings", json={**fields, "encoding_format": "bytes"}
            )
            assert whole.headers["content-type"] == "application/octet-stream"
            said = json.loads(whole.headers["metadata"])
            assert said["usage"] == known["usage"]
            assert said["model"] == known["model"]
            values = [each["embedding"] for each in (await post(server, **fields))["data"]]
            for index, item in enumerate(said["data"]):
                assert (item["index"], item["embed_dtype"], item["shape"]) == (index, name, [SIZE])
                found = np.frombuffer(whole.content[item["start"] : item["end"]], stored)
                found = element_type(name).floats(found)
                assert np.array_equal(found.astype(np.float64), values[index])
            assert said["data"][-1]["end"] == len(whole.content)
            only = await server.client.post(
                "/v1/embeddings", json={**fields, "encoding_format": "bytes_only"}
            )
            assert only.content == whole.content
            assert "metadata" not in only.headers

    run(body)


def test_bytes_of_a_model_whose_name_is_not_ascii() -> None:
    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        pipeline.model = replace(pipeline.model, names=("模型",))
        fields = {"input": "a", "encoding_format": "bytes"}
        response = await server.client.post("/v1/embeddings", json=fields)
        assert response.status_code == 200, response.text
        assert json.loads(response.headers["metadata"])["model"] == "模型"

    run(body)


def test_as_many_inputs_as_a_header_describes() -> None:
    async def body(server: FakeServer) -> None:
        longest = {"embed_dtype": "bfloat16", "endianness": "native", "encoding_format": "bytes"}
        fields = {"input": ["a"] * MAX_DESCRIBED_INPUTS, **longest}
        response = await server.client.post("/v1/embeddings", json=fields)
        assert response.status_code == 200
        assert len(response.headers["metadata"]) < 8192
        more = {**fields, "input": ["a"] * (MAX_DESCRIBED_INPUTS + 1)}
        assert "bytes_only" in (await post(server, 400, **more))["error"]["message"]
        more["encoding_format"] = "bytes_only"
        assert (await server.client.post("/v1/embeddings", json=more)).status_code == 200

    run(body)


def test_bfloat16_is_rounded_as_torch_does() -> None:
    patterns = np.array(
        [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F800000, 0x7FC12345],
        np.uint32,
    )
    content = element_type("bfloat16").content(patterns.view(np.float32), is_big=False)
    found = np.frombuffer(content, "<u2").tolist()
    assert found == [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x7FC0]
