"""`/v2/chat` over the fake engine, whose tokens are bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.output_machine import Formats
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

_USER: dict[str, Any] = {"role": "user", "content": "How is the weather?"}
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object"}},
}
_CALL = '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>'
_PARIS, _OSLO = '{"city": "Paris"}', '{"city": "Oslo"}'
_CALLS = f"<think>\nI look it up.\n</think>\n\nLet me see.\n{_CALL % _PARIS}\n{_CALL % _OSLO}"


def _run(
    test: Callable[[FakeServer], Awaitable[None]], output: str = "It rains.", **more: Any
) -> None:
    async def body() -> None:
        options = FakeOptions(next_token=script(output), **more)
        renderer = FakeRenderer(Formats(THINK, HERMES))
        async with fake_server(options, renderer=renderer, max_model_len=4096) as server:
            await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def _post(server: FakeServer, status: int = 200, path: str = "/v2/chat", **more: Any) -> Any:
    body = {"model": "fake", "messages": [_USER], "max_tokens": 1000, **more}
    response = await server.client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


async def _events(server: FakeServer, **more: Any) -> list[dict[str, Any]]:
    body = {"messages": [_USER], "max_tokens": 1000, "stream": True, **more}
    response = await server.client.post("/v2/chat", json=body)
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    *written, last = response.text.split("\n\n")
    assert last == ""
    events: list[dict[str, Any]] = []
    for each in written:
        name, data = each.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def test_a_text() -> None:
    async def body(server: FakeServer) -> None:
        for path in ("/v2/chat", "/cohere/v2/chat"):
            got = await _post(server, path=path)
            assert got.pop("id")
            tokens = got["usage"]["tokens"]
            assert tokens == got["usage"]["billed_units"]
            assert tokens["output_tokens"] == len("It rains.") + 1
            assert got["usage"]["cached_tokens"] >= 0
            assert got["finish_reason"] == "COMPLETE"
            content = [{"type": "text", "text": "It rains."}]
            assert got["message"] == {"role": "assistant", "content": content}

    _run(body)


@pytest.mark.parametrize(
    ("fields", "reason", "text"),
    [
        ({"max_tokens": 3}, "MAX_TOKENS", "It "),
        ({"stop_sequences": ["rai"]}, "STOP_SEQUENCE", "It "),
        ({}, "COMPLETE", "It rains."),
    ],
)
def test_why_it_ended(fields: dict[str, Any], reason: str, text: str) -> None:
    async def body(server: FakeServer) -> None:
        got = await _post(server, **fields)
        assert (got["finish_reason"], got["message"]["content"][0]["text"]) == (reason, text)
        events = await _events(server, **fields)
        assert events[-1]["delta"]["finish_reason"] == reason
        said = [e["delta"]["message"]["content"] for e in events if e["type"] == "content-delta"]
        assert "".join(piece["text"] for piece in said) == text

    _run(body)


def test_thoughts_and_calls() -> None:
    async def body(server: FakeServer) -> None:
        got = await _post(server, tools=[_TOOL])
        assert got["finish_reason"] == "TOOL_CALL"
        thought, text = got["message"]["content"]
        assert thought == {"type": "thinking", "thinking": "I look it up."}
        assert text == {"type": "text", "text": "Let me see."}
        calls = got["message"]["tool_calls"]
        assert [call["function"]["arguments"] for call in calls] == [_PARIS, _OSLO]
        assert [call["function"]["name"] for call in calls] == ["get_weather"] * 2
        assert len({call["id"] for call in calls}) == 2
        assert {call["type"] for call in calls} == {"function"}

    _run(body, _CALLS)


def test_a_stream_says_the_same() -> None:
    async def body(server: FakeServer) -> None:
        first, *events, last = await _events(server, tools=[_TOOL])
        assert first["type"] == "message-start" and first["id"] == last["id"]
        assert first["delta"] == {"message": {"role": "assistant", "content": []}}
        assert last["delta"]["finish_reason"] == "TOOL_CALL"
        assert last["delta"]["usage"]["tokens"]["output_tokens"] == len(_CALLS) + 1
        kinds = [event["type"] for event in events]
        order = [kind for at, kind in enumerate(kinds) if not at or kinds[at - 1] != kind]
        content = ["content-start", "content-delta", "content-end"]
        call = ["tool-call-start", "tool-call-delta", "tool-call-end"]
        assert order == [*content, *content, *call, *call]
        texts = {0: "", 1: ""}
        arguments = {0: "", 1: ""}
        for event in events:
            message = event.get("delta", {}).get("message", {})
            if event["type"] == "content-delta":
                (piece,) = message["content"].values()
                assert "thinking" in message["content"] or event["index"] == 1
                texts[event["index"]] += piece
            elif event["type"] == "tool-call-delta":
                arguments[event["index"]] += message["tool_calls"]["function"]["arguments"]
        assert texts == {0: "I look it up.", 1: "Let me see."}
        assert arguments == {0: _PARIS, 1: _OSLO}

    _run(body, _CALLS)


def test_log_probabilities() -> None:
    async def body(server: FakeServer) -> None:
        got = await _post(server, logprobs=True)
        items = got["logprobs"]
        assert "".join(item["text"] for item in items).startswith("It rains.")
        assert all(len(item["token_ids"]) == len(item["logprobs"]) == 1 for item in items)
        events = await _events(server, logprobs=True)
        said = [event["logprobs"] for event in events if event["type"] == "content-delta"]
        ids = [token for item in said for token in item["token_ids"]]
        assert bytes(ids) == b"It rains."
        assert "".join(item["text"] for item in said) == "It rains."

    _run(body)


def test_messages_of_all_roles() -> None:
    async def body(server: FakeServer) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": _PARIS}}
        document = {"type": "document", "document": {"id": "d1", "data": {"sky": "grey", "id": 5}}}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": [{"type": "text", "text": "Be "}, _text("brief.")]},
            {"role": "user", "content": [_text("Hi")]},
            {"role": "assistant", "tool_plan": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [document, _text("wet")]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "So."}, _text("A")]},
            _USER,
        ]
        await _post(server, messages=messages)
        system, user, called, result, said, last = server.renderer.rendered[-1].messages
        assert (system["content"], last["content"]) == ("Be brief.", _USER["content"])
        assert user["content"] == [_text("Hi")]
        assert (called["tool_plan"], called["reasoning"]) == ("I look.", "I look.")
        assert called["tool_calls"][0]["id"] == "c1" and called.get("content") is None
        assert result["content"] == '{"sky":"grey","id":"d1"}\nwet'
        assert (said["reasoning"], said["content"]) == ("So.", "A")

    _run(body)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_tools_may_be_required_and_strict() -> None:
    async def body(server: FakeServer) -> None:
        await _post(server, tools=[_TOOL], strict_tools=True, tool_choice="NONE")
        (shown,) = server.renderer.rendered[-1].tools or ()
        assert shown["function"]["strict"] is True
        got = await _post(server, 400, tool_choice="REQUIRED")
        assert "tool" in got["message"]

    _run(body)


def test_an_object_of_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}

    async def body(server: FakeServer) -> None:
        format_ = {"type": "json_object", "json_schema": {**schema, "additionalProperties": False}}
        got = await _post(server, response_format=format_, temperature=0)
        assert json.loads(got["message"]["content"][0]["text"]) == {"a": 1}

    _run(body, '{"a":1}')


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages"),
        ({"model": "absent"}, "absent"),
        ({"tools": [{"type": "function"}]}, "`tools[0]`"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"citation_options": {"mode": "FAST"}}, "`citation_options` is not supported"),
        ({"watermarking": True}, "this server has no watermark"),
        ({"raw_prompting": True}, "`raw_prompting` is not supported"),
        ({"k": -1}, "`k`"),
        ({"p": 1.5}, "`p`"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"documents": [5]}, "documents"),
        ({"response_format": {"type": "json_object", "json_schema": {"type": "objec"}}}, "objec"),
        ({"thinking": {"type": "sometimes"}}, "thinking"),
        ({"priority": 1}, "priority"),
    ],
)
def test_refusals_have_the_shape_of_cohere(fields: dict[str, Any], words: str) -> None:
    async def body(server: FakeServer) -> None:
        status = 404 if "model" in fields else 400
        got = await _post(server, status, **fields)
        assert got.keys() == {"message"} and words in got["message"], got

    _run(body)


def test_deep_documents_are_no_failure() -> None:
    async def body(server: FakeServer) -> None:
        deep: Any = "x"
        for _ in range(400):
            deep = {"a": deep}
        document = {"type": "document", "document": {"data": deep}}
        messages = [{"role": "tool", "tool_call_id": "c", "content": [document]}]
        await _post(server, messages=messages)

    _run(body)


def test_a_stream_that_fails_says_so() -> None:
    async def body(server: FakeServer) -> None:
        assert (await _post(server, 500)).keys() == {"message"}
        first, *_, last = await _events(server)
        assert (first["type"], last["type"]) == ("message-start", "message-end")
        assert last["delta"]["finish_reason"] == "ERROR"
        assert last["delta"]["error"] == "The runner failed this request."

    _run(body, "abc", fail_at_position=2)


def test_modes_without_citations_are_no_matter() -> None:
    async def body(server: FakeServer) -> None:
        for mode in ("OFF", "disabled"):
            await _post(server, citation_options={"mode": mode}, safety_mode="OFF")

    _run(body)
