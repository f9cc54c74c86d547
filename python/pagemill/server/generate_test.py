"""Tokens in and out, and renderings that are such requests; token ids are bytes."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.testing.fake_server import FakeServer, fake_server

ROUTE = "/inference/v1/generate"
USER = {"role": "user", "content": "Hi"}


def run(body: Callable[[FakeServer], Awaitable[None]], options: FakeOptions | None = None) -> None:
    async def main() -> None:
        async with fake_server(options) as server:
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, route: str, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post(route, json=fields)
    assert response.status_code == status, response.text
    return response.json()


def test_tokens_in_tokens_out() -> None:
    async def body(server: FakeServer) -> None:
        prompt = [*b"abc"]
        sampling = {"max_tokens": 4, "logprobs": 1, "seed": 1}
        answer = await post(
            server, ROUTE, token_ids=prompt, sampling_params=sampling, return_token_ids=True
        )
        known = await post(
            server,
            "/v1/completions",
            prompt=prompt,
            max_tokens=4,
            seed=1,
            return_token_ids=True,
        )
        (choice,) = answer["choices"]
        assert choice["token_ids"] == known["choices"][0]["token_ids"] and "text" not in choice
        assert choice["finish_reason"] == known["choices"][0]["finish_reason"]
        tokens = [each["token"] for each in choice["logprobs"]["content"]]
        assert tokens == [f"token_id:{token}" for token in choice["token_ids"]]
        assert answer["usage"] == known["usage"]
        assert answer["prompt_token_ids"] == prompt and answer["output_mode"] == "tokens"
        texts = await post(
            server, ROUTE, token_ids=prompt, sampling_params=sampling, output_mode="text"
        )
        assert texts["choices"][0]["text"] == known["choices"][0]["text"]
        assert "prompt_token_ids" not in texts

    run(body)


@pytest.mark.parametrize("mode", ["tokens", "text"])
def test_a_stream(mode: str) -> None:
    async def body(server: FakeServer) -> None:
        request = {"token_ids": [*b"abc"], "sampling_params": {"max_tokens": 6, "n": 2, "seed": 1}}
        request |= {"output_mode": mode, "request_id": "r1"}
        whole = await post(server, ROUTE, **request)
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        lines = (await server.client.post(ROUTE, json=request)).text.split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
        assert events[-1]["choices"] == [] and events[-1]["usage"] == whole["usage"]
        assert {event["request_id"] for event in events} == {whole["request_id"]} == {"r1"}
        for choice in whole["choices"]:
            parts = [c for e in events for c in e["choices"] if c["index"] == choice["index"]]
            assert len(parts) > 1
            assert [t for part in parts for t in part["token_ids"]] == choice["token_ids"]
            if mode == "text":
                assert "".join(part["text"] for part in parts) == choice["text"]
            assert parts[-1]["finish_reason"] == choice["finish_reason"]

    run(body)


@pytest.mark.parametrize("max_tokens", [6, 2])
def test_a_choice_says_which_weights_gave_its_tokens(max_tokens: int) -> None:
    spans = [{"version": "", "start": 0, "end": 2}, {"version": "7", "start": 2, "end": 6}]

    async def body(server: FakeServer) -> None:
        request: dict[str, Any] = {"token_ids": [*b"abc"], "stream": False}
        request["sampling_params"] = {"max_tokens": max_tokens, "n": 2, "seed": 1}
        expected = [span for span in spans if span["start"] < max_tokens]
        whole = await post(server, ROUTE, **request)
        assert [choice["weight_versions"] for choice in whole["choices"]] == [expected] * 2
        text = (await server.client.post(ROUTE, json={**request, "stream": True})).text
        events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]
        ends = [c for e in events for c in e["choices"] if "weight_versions" in c]
        assert [choice["weight_versions"] for choice in ends] == [expected] * 2
        assert all(choice["finish_reason"] for choice in ends)

    run(body, FakeOptions(weight_versions=((0, ""), (2, "7"))))


def test_a_rendering_is_a_request() -> None:
    async def body(server: FakeServer) -> None:
        chat = {"messages": [USER], "max_completion_tokens": 5, "temperature": 0.5, "seed": 3}
        chat |= {"stop": ["xyz"], "logprobs": True, "top_logprobs": 2, "cache_salt": "s"}
        rendered = await post(server, "/v1/chat/completions/render", **chat)
        assert bytes(rendered["token_ids"]).decode() == "user:Hi\nassistant:"
        assert rendered["sampling_params"] == {
            "max_tokens": 5,
            "temperature": 0.5,
            "seed": 3,
            "stop": ["xyz"],
            "logprobs": 2,
        }
        assert rendered["cache_salt"] == "s"
        assert not server.engine.submitted
        answer = await post(server, ROUTE, **rendered, output_mode="text")
        known = await post(server, "/v1/chat/completions", **chat)
        assert answer["choices"][0]["text"] == known["choices"][0]["message"]["content"]
        assert answer["usage"]["prompt_tokens"] == known["usage"]["prompt_tokens"]
        rendered = await post(server, "/v1/chat/completions/render", messages=[USER])
        room = 256 - len(rendered["token_ids"])
        assert rendered["sampling_params"] == {"max_tokens": room}

    run(body)


def test_prompts_are_rendered_one_by_one() -> None:
    async def body(server: FakeServer) -> None:
        schema = {"type": "json_object"}
        requests = await post(
            server, "/v1/completions/render", prompt=["ab", "c"], response_format=schema
        )
        assert [bytes(each["token_ids"]) for each in requests] == [b"ab", b"c"]
        expected = {"max_tokens": 16, "response_format": schema}
        assert all(each["sampling_params"] == expected for each in requests)

    run(body)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"token_ids": [], "sampling_params": {}}, 400, "token_ids"),
        ({"token_ids": [-1], "sampling_params": {}}, 400, "token_ids"),
        ({"token_ids": [1]}, 400, "sampling_params"),
        ({"token_ids": [1], "sampling_params": {"max_tokens": 0}}, 400, "sampling_params"),
        ({"token_ids": [1], "sampling_params": {"temperature": -1}}, 400, "sampling_params"),
        ({"token_ids": [1], "sampling_params": {"detokenize": False}}, 400, "sampling_params"),
        ({"token_ids": [1], "sampling_params": {}, "features": {"a": 1}}, 501, "features"),
        ({"token_ids": [2**30], "sampling_params": {}}, 400, "token_ids"),
        ({"token_ids": [1] * 300, "sampling_params": {}}, 400, "token_ids"),
    ],
)
def test_refusals(fields: dict[str, Any], status: int, param: str) -> None:
    async def body(server: FakeServer) -> None:
        response = await server.client.post(ROUTE, json=fields)
        assert response.status_code in (status, 400), response.text
        assert (response.json()["error"]["param"] or "").startswith(param), response.text

    run(body)


@pytest.mark.parametrize(
    ("route", "fields", "param"),
    [
        ("/v1/completions/render", {"prompt": ""}, "prompt"),
        ("/v1/completions/render", {"prompt": "a" * 300}, "prompt"),
        ("/v1/completions/render", {"prompt": [300]}, "prompt"),
        ("/v1/completions/render", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("/v1/chat/completions/render", {"messages": []}, "messages"),
        ("/v1/chat/completions/render", {"messages": [USER], "max_tokens": 999}, "max_tokens"),
    ],
)
def test_what_could_not_be_generated_is_not_rendered(
    route: str, fields: dict[str, Any], param: str
) -> None:
    async def body(server: FakeServer) -> None:
        assert (await post(server, route, 400, **fields))["error"]["param"] == param

    run(body)


def test_a_rendering_is_truncated() -> None:
    async def body(server: FakeServer) -> None:
        fields = {"prompt": "abcdef", "truncate_prompt_tokens": 2}
        (request,) = await post(server, "/v1/completions/render", **fields)
        assert bytes(request["token_ids"]) == b"ef"

    run(body)


def experts_of(choice: dict[str, Any]) -> np.ndarray:
    return np.load(io.BytesIO(base64.b64decode(choice["routed_experts"])), allow_pickle=False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", [ROUTE, "/v1/completions", "/v1/chat/completions"])
def test_experts_of_the_tokens_come_with_the_end_of_a_choice(route: str, stream: bool) -> None:
    fields: dict[str, Any] = {"max_tokens": 4, "seed": 1, "return_routed_experts": True}
    request: dict[str, Any] = {
        ROUTE: {"token_ids": [*b"abc"], "sampling_params": fields},
        "/v1/completions": {"prompt": "abc", "return_token_ids": True, **fields},
        "/v1/chat/completions": {"messages": [USER], "return_token_ids": True, **fields},
    }[route]

    async def ended(server: FakeServer) -> tuple[list[int], np.ndarray]:
        """The tokens of the choice, and its experts."""
        if not stream:
            (choice,) = (await post(server, route, **request))["choices"]
            return choice["token_ids"], experts_of(choice)
        lines = (await server.client.post(route, json=request | {"stream": True})).text.split(
            "\n\n"
        )
        events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
        choices = [choice for event in events for choice in event["choices"]]
        assert not any("routed_experts" in choice for choice in choices[:-1])
        token_ids = [token for choice in choices for token in choice.get("token_ids", [])]
        return token_ids, experts_of(choices[-1])

    async def body(server: FakeServer) -> None:
        token_ids, experts = await ended(server)
        assert experts.dtype == np.uint16
        assert experts.shape[1:] == (2, 1), "layers and choices"
        assert experts[-3:, :, 0].tolist() == [[t, 100 + t] for t in token_ids[:-1]]
        fields["routed_experts_prompt_start"] = 2
        request.update(fields if route != ROUTE else {})
        _, rest = await ended(server)
        assert (rest == experts[2:]).all()
        fields["return_routed_experts"] = False
        request.update(fields if route != ROUTE else {})
        if not stream:
            (choice,) = (await post(server, route, **request))["choices"]
            assert "routed_experts" not in choice

    run(body)


def test_experts_do_not_go_with_stop_strings_and_beams() -> None:
    async def body(server: FakeServer) -> None:
        fields: dict[str, Any] = {"prompt": "abc", "return_routed_experts": True}
        refused = await post(server, "/v1/completions", 400, **fields, stop=["x"])
        assert "`stop_token_ids`" in refused["error"]["message"]
        refused = await post(server, "/v1/completions", 400, **fields, use_beam_search=True, n=2)
        assert refused["error"]["param"] == "return_routed_experts"

    run(body)
