"""`/v1/chat/completions` over the fake engine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pagemill.server.testing.fake_server import FakeServer, fake_server

USER = [{"role": "user", "content": "Hi"}]


def run(test: Callable[[FakeServer], Awaitable[None]]) -> None:
    async def body() -> None:
        async with fake_server() as server:
            await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def post(server: FakeServer, status: int = 200, **body: Any) -> Any:
    response = await server.client.post("/v1/chat/completions", json={"messages": USER, **body})
    assert response.status_code == status, response.text
    return response.json()


async def stream(server: FakeServer, **body: Any) -> list[Any]:
    payload = {"messages": USER, **body, "stream": True}
    response = await server.client.post("/v1/chat/completions", json=payload)
    assert response.status_code == 200, response.text
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [msgspec.json.decode(e.removeprefix("data: ")) for e in events[:-2]]


def test_response() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, max_tokens=4, seed=1)
        assert got["object"] == "chat.completion"
        assert got["id"].startswith("chatcmpl-")
        (choice,) = got["choices"]
        assert choice["message"]["role"] == "assistant"
        assert len(choice["message"]["content"]) == 4
        assert (choice["finish_reason"], choice["logprobs"]) == ("length", None)
        assert got["usage"]["prompt_tokens"] == len("user:Hi\nassistant:")

    run(body)


def test_the_default_is_all_the_room_there_is() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server)
        assert got["usage"]["total_tokens"] == 256

    run(body)


def test_max_completion_tokens_wins() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, max_tokens=9, max_completion_tokens=3)
        assert got["usage"]["completion_tokens"] == 3

    run(body)


def test_stream_begins_with_the_role_and_adds_up() -> None:
    async def body(server: FakeServer) -> None:
        payload = {"max_tokens": 6, "seed": 4, "n": 2}
        whole = await post(server, **payload)
        chunks = await stream(server, **payload, stream_options={})
        assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
        for index in (0, 1):
            own = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == index]
            assert own[0]["delta"] == {"role": "assistant", "content": ""}
            assert all("role" not in c["delta"] for c in own[1:])
            text = "".join(c["delta"]["content"] for c in own)
            assert text == whole["choices"][index]["message"]["content"]
            assert [c["finish_reason"] for c in own].count("length") == 1
            assert own[-1]["finish_reason"] == "length"
        assert chunks[-1]["usage"] == whole["usage"]

    run(body)


def test_logprobs() -> None:
    async def body(server: FakeServer) -> None:
        payload = {"max_tokens": 3, "seed": 1, "logprobs": True}
        got = await post(server, **payload, top_logprobs=2)
        entries = got["choices"][0]["logprobs"]["content"]
        text = got["choices"][0]["message"]["content"]
        assert [e["token"] for e in entries] == list(text)
        assert entries[0]["bytes"] == [ord(text[0])]
        assert [t["logprob"] for t in entries[0]["top_logprobs"]] == [-0.5, -1.5]
        bare = (await post(server, **payload))["choices"][0]["logprobs"]["content"]
        assert all(e["top_logprobs"] == [] for e in bare)
        chunks = await stream(server, **payload, top_logprobs=2)
        streamed = [c["choices"][0]["logprobs"] for c in chunks]
        assert sum((s["content"] for s in streamed if s), []) == entries

    run(body)


def test_logprobs_of_chosen_tokens() -> None:
    async def body(server: FakeServer) -> None:
        payload = {"max_tokens": 2, "seed": 1, "logprobs": True, "logprob_token_ids": [88, 87]}
        for top in ({}, {"top_logprobs": 1}):
            got = (await post(server, **payload, **top))["choices"][0]["logprobs"]["content"]
            for entry in got:
                tops = [(each["token"], each["logprob"]) for each in entry["top_logprobs"]]
                assert tops == [("X", -97.0), ("W", -96.0)]

    run(body)


def test_echo_and_continuation() -> None:
    async def body(server: FakeServer) -> None:
        messages = [*USER, {"role": "assistant", "content": "Well,"}]
        payload = {
            "messages": messages,
            "echo": True,
            "add_generation_prompt": False,
            "continue_final_message": True,
            "max_tokens": 2,
        }
        got = await post(server, **payload)
        assert got["choices"][0]["message"]["content"].startswith("Well,")
        chunks = await stream(server, **payload)
        assert chunks[0]["choices"][0]["delta"]["content"] == "Well,"
        payload["add_generation_prompt"] = True
        error = (await post(server, 400, **payload))["error"]
        assert error["param"] == "continue_final_message"

    run(body)


def test_prompt_logprobs_and_token_ids() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, max_tokens=2, prompt_logprobs=0, return_token_ids=True)
        prompt = list(b"user:Hi\nassistant:")
        assert got["prompt_token_ids"] == prompt
        assert len(got["choices"][0]["token_ids"]) == 2
        assert got["prompt_logprobs"][0] is None
        assert [list(row) for row in got["prompt_logprobs"][1:]] == [[str(i)] for i in prompt[1:]]

    run(body)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "Hi",
        [5],
        [{}],
        [{"role": 5, "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {}}],
        [{"role": "user", "content": [5]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [{"type": "refusal", "text": "x"}]}],
        [{"role": "refuse", "content": "x"}],
    ],
)
def test_bad_messages(messages: object) -> None:
    async def body(server: FakeServer) -> None:
        error = (await post(server, 400, messages=messages))["error"]
        assert error["param"] == "messages"
        assert len(error["message"]) > 10

    run(body)


def test_accepted_messages() -> None:
    async def body(server: FakeServer) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        for message in (
            {"role": "user", "content": parts, "name": "x"},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "assistant", "tool_calls": []},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "system", "content": ""},
        ):
            await post(server, messages=[message], max_tokens=1)

    run(body)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("status", "param", "body"),
    [
        (400, "tools", {"tools": [TOOL]}),
        (400, "tools", {"tools": [TOOL], "tool_choice": "auto"}),
        (400, "tool_choice", {"tool_choice": "required"}),
        (400, "response_format", {"response_format": {"type": "json_schema", "json_schema": {}}}),
        (400, "modalities", {"modalities": ["audio"]}),
        (400, "top_logprobs", {"top_logprobs": 2}),
        (400, "logprob_token_ids", {"logprob_token_ids": [2]}),
        (400, "top_logprobs", {"logprobs": True, "top_logprobs": -2}),
        (400, "chat_template", {"chat_template": "x"}),
        (400, "chat_template_kwargs", {"chat_template_kwargs": {"chat_template": "x"}}),
        (400, "max_tokens", {"max_tokens": 0}),
        (400, "prompt_logprobs", {"prompt_logprobs": 1, "stream": True}),
    ],
)
def test_refusals(status: int, param: str, body: dict[str, Any]) -> None:
    async def check(server: FakeServer) -> None:
        error = (await post(server, status, **body))["error"]
        assert (error["code"], error["param"]) == (status, param)

    run(check)


def test_tools_may_be_shown_without_being_called() -> None:
    async def body(server: FakeServer) -> None:
        await post(server, tools=[TOOL], tool_choice="none", max_tokens=1)
        await post(server, tools=[], tool_choice="auto", max_tokens=1)

    run(body)
