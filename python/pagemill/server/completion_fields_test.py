"""Fields of `/v1/completions` that are refused, and those that may say anything."""

import asyncio
from typing import Any

import pytest

from pagemill.server.fake_server import FakeServer, fake_server


async def refuse(server: FakeServer, status: int, param: str | None, **body: Any) -> str:
    response = await server.client.post("/v1/completions", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (status, param)
    return error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("n", 1.5),
        ("n", "2"),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 2),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("max_tokens", -1),
        ("max_tokens", 2**40),
        ("min_tokens", -1),
        ("seed", 2**63),
        ("seed", "x"),
        ("stop", [""]),
        ("stop", ["x"] * 65),
        ("stop", 5),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [2**31]),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"1": "x"}),
        ("logprobs", 21),
        ("logprobs", -1),
        ("logprobs", True),
        ("prompt_logprobs", 21),
        ("stream", "yes"),
        ("stream_options", {}),
        ("stream_options", 5),
        ("cache_salt", ""),
        ("priority", 1),
        ("echo", 1),
        ("ignore_eos", "no"),
        ("truncate_prompt_tokens", -2),
    ],
)
def test_bad_values_name_the_field(field: str, value: object) -> None:
    async def body() -> None:
        async with fake_server() as server:
            message = await refuse(server, 400, field, **{"prompt": "a", field: value})
            assert field in message

    asyncio.run(body())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "x"),
        ("best_of", 2),
        ("response_format", {"type": "json_object"}),
        ("use_beam_search", True),
        ("guided_json", {"a": 1}),
        ("structured_outputs", {"regex": "a"}),
        ("bad_words", ["x"]),
        ("allowed_token_ids", [1]),
        ("prompt_embeds", "AAAA"),
    ],
)
def test_what_cannot_be_honoured_is_refused(field: str, value: object) -> None:
    async def body() -> None:
        async with fake_server() as server:
            message = await refuse(server, 400, field, **{"prompt": "a", field: value})
            assert message.startswith(f"`{field}` is not supported")

    asyncio.run(body())


def test_what_asks_for_nothing_is_accepted() -> None:
    async def body() -> None:
        asked = {
            "prompt": "a",
            "suffix": None,
            "best_of": 1,
            "response_format": {"type": "text"},
            "user": "u",
            "metadata": {},
            "temperature": None,
            "stop": None,
            "n": None,
            "no_such_field": 1,
        }
        async with fake_server() as server:
            response = await server.client.post("/v1/completions", json=asked)
            assert response.status_code == 200, response.text

    asyncio.run(body())
