"""What is rendered and generated elsewhere is written as the request itself would be answered."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pagemill.render.assembly import ChoiceAssembler
from pagemill.server.derender.output import MAX_TOKENS, PORTION_TOKENS, push
from pagemill.server.errors import ApiError
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.derender import RULES, ChatDerenderRequest, StreamState
from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
GENERATE = "/inference/v1/generate"


def run(body: Callable[[FakeServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fake_server(renderer=FakeRenderer(MARKED), max_model_len=512) as server:
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, route: str, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post(route, json=fields)
    assert response.status_code == status, response.text
    return response.json()


async def events(server: FakeServer, route: str, **fields: Any) -> list[Any]:
    response = await server.client.post(route, json={**fields, "stream": True})
    assert response.status_code == 200, response.text
    lines = response.text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    return [json.loads(each) for each in data]


@pytest.mark.parametrize("demands", [{}, {"tools": TOOLS, "tool_choice": "required"}])
def test_what_is_rendered_and_generated_is_derendered(demands: dict[str, Any]) -> None:
    async def body(server: FakeServer) -> None:
        for seed in range(4):
            chat = {"messages": [USER], "max_tokens": 40, "seed": seed, "n": 2, **demands}
            chat |= {"logprobs": True, "top_logprobs": 2, "stop": ["e"], "return_token_ids": True}
            known = await post(server, CHAT, **chat)
            answer = await post(server, GENERATE, **await post(server, f"{CHAT}/render", **chat))
            fields = {"chat_request": chat, "generate_response": answer, "request_id": "r"}
            found = await post(server, f"{CHAT}/derender", **fields)
            assert found["id"] == "chatcmpl-r"
            for each in (found, known):
                del each["id"], each["created"]
                for choice in each["choices"]:
                    for call in choice["message"].get("tool_calls", ()):
                        del call["id"]
            assert found["choices"] == known["choices"]
            assert found["usage"]["total_tokens"] == known["usage"]["total_tokens"]

    run(body)


def generated(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"token_ids": [97], "finish_reason": "stop", **fields}]}


def logged(*alternatives: int) -> dict[str, Any]:
    """Log probabilities of one token."""
    top = [{"token": f"token_id:{token}", "logprob": -1.0, "bytes": []} for token in alternatives]
    return {
        "content": [{"token": "token_id:97", "logprob": -1.0, "bytes": [], "top_logprobs": top}]
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"generate_response": 5}, "generate_response"),
        ({"generate_response": {"choices": []}}, "generate_response"),
        ({"generate_response": generated(token_ids=[300])}, "generate_response"),
        ({"generate_response": generated(token_ids=[97] * 513)}, "generate_response"),
        ({"generate_response": generated(logprobs={"content": []})}, "generate_response"),
        ({"generate_response": generated(logprobs=logged(97, 300))}, "generate_response"),
        ({"chat_request": 5}, "chat_request"),
        ({"chat_request": {}}, "messages"),
        ({"chat_request": {"messages": [USER], "temperature": -1}}, "temperature"),
        ({"generate_response": {"choices": [*generated()["choices"]] * 2}}, "generate_response"),
        ({"stream": True}, "generate_chunk"),
        ({"model": "absent"}, "model"),
        ({"chat_request": {"messages": [USER], "model": "absent"}}, "model"),
    ],
)
def test_what_cannot_be_derendered(fields: dict[str, Any], param: str) -> None:
    async def body(server: FakeServer) -> None:
        good = {"chat_request": {"messages": [USER]}, "generate_response": generated()}
        await post(server, f"{CHAT}/derender", **good)
        status = 404 if param == "model" else 400
        refused = await post(server, f"{CHAT}/derender", status, **{**good, **fields})
        assert refused["error"]["param"] == param, refused

    run(body)


def test_completions() -> None:
    async def body(server: FakeServer) -> None:
        fields = {"prompt": ["Hi", "Ho"], "n": 2, "max_tokens": 20, "seed": 3, "logprobs": 2}
        fields |= {"stop": ["e"], "return_token_ids": True}
        known = await post(server, COMPLETION, **fields)
        answers = [
            await post(server, GENERATE, **rendered)
            for rendered in await post(server, f"{COMPLETION}/render", **fields)
        ]
        sent = {"completion_request": fields, "request_id": "r"}
        found = await post(server, f"{COMPLETION}/derender", **sent, generate_responses=answers)
        assert found["id"] == "cmpl-r"
        assert found["choices"] == known["choices"]
        assert found["usage"]["total_tokens"] == known["usage"]["total_tokens"]
        one = {**fields, "prompt": "Hi"}
        sent["completion_request"] = one
        found = await post(server, f"{COMPLETION}/derender", **sent, generate_response=answers[0])
        assert found["choices"] == known["choices"][:2]

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"generate_responses": [generated()]}, "generate_responses"),
        ({"generate_responses": []}, "generate_response"),
        ({"generate_response": generated()}, "generate_response"),
        ({"completion_request": {"prompt": ["a", "b"], "echo": True}}, "completion_request"),
        ({"completion_request": {"prompt": ["a", "b"], "prompt_logprobs": 1}},
         "completion_request"),
        ({"completion_request": {"prompt": ["a", "b"], "max_tokens": 0}}, "max_tokens"),
        ({"stream": True, "generate_chunk": {"choices": []}}, "completion_request"),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_a_completion(fields: dict[str, Any], param: str) -> None:
    async def body(server: FakeServer) -> None:
        good = {
            "completion_request": {"prompt": ["a", "b"]},
            "generate_responses": [generated()] * 2,
        }
        await post(server, f"{COMPLETION}/derender", **good)
        refused = await post(server, f"{COMPLETION}/derender", 400, **{**good, **fields})
        assert refused["error"]["param"] == param, refused

    run(body)


def joined(chunks: list[Any]) -> list[Any]:
    """Events of a choice with the events behind them, where these are of the same choice."""
    found: list[Any] = []
    for chunk in chunks:
        if found and chunk["choices"] and found[-1]["choices"]:
            choice, last = chunk["choices"][0], found[-1]["choices"][0]
            if choice["index"] == last["index"]:
                choice["token_ids"] = last["token_ids"] + choice["token_ids"]
                found.pop()
        found.append(chunk)
    return found


async def derendered_events(
    server: FakeServer, route: str, name: str, request: dict[str, Any], joins: bool
) -> list[Any]:
    """The chunks that come of what a rendering generates."""
    request = {**request, "stream": True}
    rendered = await post(server, f"{route}/render", **request)
    rendered = rendered[0] if isinstance(rendered, list) else rendered
    generated = await events(server, GENERATE, **rendered)
    chunks, state = [], None
    for chunk in joined(generated) if joins else generated:
        fields = {name: request, "generate_chunk": chunk, "stream": True, "stream_state": state}
        answer = await post(server, f"{route}/derender", **fields)
        state = answer["stream_state"]
        if answer["chunk"] is not None:
            chunks.append(answer["chunk"])
    return chunks


def folded(chunks: list[Any]) -> dict[int, Any]:
    """What the chunks of a stream say of each choice."""
    found: dict[int, Any] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice.get("delta", choice)
            whole = found.setdefault(choice["index"], {"text": "", "reasoning": "", "calls": ""})
            whole["text"] += delta.get("content") or delta.get("text") or ""
            whole["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls", ()):
                assert ("id" in call) == ("name" in call["function"])
                whole["calls"] += call["function"].get("name") or ""
                whole["calls"] += call["function"]["arguments"]
            whole["finish_reason"] = choice["finish_reason"] or whole.get("finish_reason")
    return found


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("demands", [{}, {"tools": TOOLS, "tool_choice": "required"}])
def test_events_of_chats(demands: dict[str, Any], joins: bool) -> None:
    async def body(server: FakeServer) -> None:
        for seed in range(4):
            chat = {"messages": [USER], "max_tokens": 40, "seed": seed, "stop": ["e"]}
            chat |= {"n": 1 if joins else 2, "stream_options": {"include_usage": True}, **demands}
            known = await events(server, CHAT, **chat)
            found = await derendered_events(server, CHAT, "chat_request", chat, joins)
            assert folded(found) == folded(known)
            assert found[0]["choices"][0]["delta"]["role"] == "assistant"
            assert len({(each["id"], each["created"]) for each in found}) == 1
            assert found[-1]["usage"]["total_tokens"] == known[-1]["usage"]["total_tokens"]

    run(body)


def test_events_of_completions() -> None:
    async def body(server: FakeServer) -> None:
        fields = {"prompt": "Hi", "max_tokens": 20, "seed": 5, "stop": ["e"]}
        known = await events(server, COMPLETION, **fields)
        found = await derendered_events(server, COMPLETION, "completion_request", fields, True)
        assert folded(found) == folded(known)

    run(body)


def state_of(**fields: Any) -> str:
    whole = {"name": "a", "created": 1, "token_ids": [[97]], **fields}
    return base64.b64encode(json.dumps(whole).encode()).decode()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_state": "?"}, "stream_state"),
        ({"stream_state": "é"}, "stream_state"),
        ({"stream_state": base64.b64encode(b"{}").decode()}, "stream_state"),
        ({"stream_state": state_of(token_ids=[[97], []])}, "stream_state"),
        ({"stream_state": state_of(token_ids=[[300]])}, "stream_state"),
        ({"stream_state": state_of(token_ids=[[97] * 512])}, "generate_chunk"),
        ({"generate_chunk": {"choices": [{"index": 1, "token_ids": []}]}}, "generate_chunk"),
        ({"generate_chunk": {"choices": [{"index": -1, "token_ids": []}]}}, "generate_chunk"),
        ({"generate_chunk": {"choices": [{"index": 0, "token_ids": [300]}]}}, "generate_chunk"),
        ({"generate_chunk": {"choices": [{"index": 0, "token_ids": []}] * 2}}, "generate_chunk"),
    ],
)
def test_events_that_are_refused(fields: dict[str, Any], param: str) -> None:
    async def body(server: FakeServer) -> None:
        good = {
            "chat_request": {"messages": [USER]},
            "stream": True,
            "stream_state": state_of(),
            "generate_chunk": {"choices": [{"index": 0, "token_ids": [98]}]},
        }
        answer = await post(server, f"{CHAT}/derender", **good)
        assert answer["chunk"]["choices"][0]["delta"]["content"] == "b"
        refused = await post(server, f"{CHAT}/derender", 400, **{**good, **fields})
        assert refused["error"]["param"] == param, refused

    run(body)


def test_a_state_has_room_for_all_tokens_that_are_read() -> None:
    state = StreamState("chatcmpl-" + "a" * 128, 2**40, [[2**31 - 1] * (MAX_TOKENS // 128)] * 128)
    longest = base64.b64encode(msgspec.json.encode(state)).decode()
    fields: dict[str, Any] = {"chat_request": {}, "stream_state": longest}
    decode_fields(fields, ChatDerenderRequest, RULES)
    fields["stream_state"] = longest * 2
    with pytest.raises(ApiError) as caught:
        decode_fields(fields, ChatDerenderRequest, RULES)
    assert (caught.value.status, caught.value.param) == (400, "stream_state")


def test_others_run_while_a_long_answer_is_read() -> None:
    num_tokens = 8 * PORTION_TOKENS

    async def main() -> None:
        assembler = ChoiceAssembler(FakeRenderer().detokenizer())
        reading = asyncio.create_task(push(assembler, 0, [97] * num_tokens, None, "length"))
        num_turns = 0
        while not reading.done():
            num_turns += 1
            await asyncio.sleep(0)
        assert num_turns >= 8
        delta = reading.result()
        assert delta.text == "a" * num_tokens and delta.finish_reason == "length"
        assert delta.offsets == list(range(num_tokens))

    asyncio.run(main())
