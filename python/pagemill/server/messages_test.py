"""`/v1/messages` and `/v1/messages/count_tokens` over HTTP; token ids are bytes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.output_machine import Formats
from pagemill.server.messages.wording import call_input
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

FORMATS = Formats(THINK, HERMES)
USER: dict[str, Any] = {"role": "user", "content": "How is the weather?"}
TOOL: dict[str, Any] = {"name": "get_weather", "input_schema": {"type": "object"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>'
PARIS, OSLO = CALL % '{"city": "Paris"}', CALL % '{"city": "Oslo"}'
OUTPUT = f"<think>\nI look it up.\n</think>\n\nLet me see.\n{PARIS}\n{OSLO}"


@dataclass(frozen=True)
class Post:
    """Sends bodies to one server."""

    server: FakeServer

    async def __call__(self, status: int = 200, path: str = "/v1/messages", **more: Any) -> Any:
        return (await self.raw(status, path, **more)).json()

    async def raw(self, status: int, path: str, **more: Any) -> httpx.Response:
        fields = {"model": "fake", "max_tokens": 1000, "messages": [USER], **more}
        body = {name: value for name, value in fields.items() if value is not None}
        response = await self.server.client.post(path, json=body)
        assert response.status_code == status, response.text
        return response

    async def events(self, **more: Any) -> list[dict[str, Any]]:
        """The events of a stream, each with its own name."""
        response = await self.raw(200, "/v1/messages", stream=True, **more)
        assert response.headers["content-type"].startswith("text/event-stream")
        *written, last = response.text.split("\n\n")
        assert last == ""
        events: list[dict[str, Any]] = []
        for each in written:
            name, data = each.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
        return events


def run(
    body: Callable[[Post], Awaitable[None]],
    output: str = OUTPUT,
    *,
    max_model_len: int = 2048,
    fail_at_position: int = -1,
    formats: Formats | None = FORMATS,
) -> None:
    async def main() -> None:
        options = FakeOptions(next_token=script(output), fail_at_position=fail_at_position)
        renderer = FakeRenderer(formats)
        async with fake_server(options, renderer=renderer, max_model_len=max_model_len) as server:
            await body(Post(server))
            assert server.async_engine.num_live == 0

    asyncio.run(main())


def folded(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a stream, as clients fold it."""
    first, *others, before, last = events
    assert (first["type"], before["type"], last["type"]) == (
        *("message_start", "message_delta"),
        "message_stop",
    )
    message = first["message"]
    assert message["content"] == [] and message["stop_reason"] is None
    is_open = False
    for event in others:
        match event["type"]:
            case "content_block_start":
                assert not is_open and event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert is_open and event["index"] == len(message["content"]) - 1
                _add(message["content"][-1], event["delta"])
            case kind:
                assert is_open and kind == "content_block_stop"
        is_open = event["type"] != "content_block_stop"
    assert not is_open
    for block in message["content"]:
        if "json" in block:
            block["input"] = json.loads(block.pop("json"))
    return {**message, **before["delta"], "usage": before["usage"]}


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case kind:
            assert kind == "input_json_delta" and block["input"] == {}
            block["json"] = block.get("json", "") + delta["partial_json"]


def plain(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what is random."""
    return [{k: v for k, v in each.items() if k not in ("id", "signature")} for each in content]


BLOCKS = [
    {"type": "thinking", "thinking": "I look it up."},
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris"}},
    {"type": "tool_use", "name": "get_weather", "input": {"city": "Oslo"}},
]


def test_a_message() -> None:
    async def body(post: Post) -> None:
        got = await post(tools=[TOOL])
        assert plain(got["content"]) == BLOCKS
        assert got["content"][0]["signature"]
        ids = [block["id"] for block in got["content"][2:]]
        assert len(set(ids)) == 2 and all(each.startswith("toolu_") for each in ids)
        assert got["id"].startswith("msg_")
        expected = {
            "type": "message",
            "role": "assistant",
            "model": "fake",
            "stop_reason": "tool_use",
            "stop_sequence": None,
        }
        assert {name: got[name] for name in expected} == expected
        assert got["usage"] == {
            "input_tokens": len("user:How is the weather?\nassistant:"),
            "output_tokens": len(OUTPUT) + 1,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }

    run(body)


@pytest.mark.parametrize("interval", [1, 7, 1000])
def test_a_stream_adds_up_to_the_message(interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(post: Post) -> None:
        server = post.server.state
        monkeypatch.setattr(server, "config", replace(server.config, stream_interval=interval))
        events = await post.events(tools=[TOOL])
        assert events[0]["message"]["usage"]["output_tokens"] == 0
        got, whole = folded(events), await post(tools=[TOOL])
        assert plain(got.pop("content")) == plain(whole.pop("content"))
        assert got.pop("id") != whole.pop("id")
        assert got == whole

    run(body)


def test_a_token_is_an_event() -> None:
    async def body(post: Post) -> None:
        events = await post.events()
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
        assert deltas == [{"type": "text_delta", "text": each} for each in 'a"\n\u00e9']
        assert [e["type"] for e in events[-3:]] == [
            *("content_block_stop", "message_delta"),
            "message_stop",
        ]

    run(body, 'a"\n\u00e9', formats=None)


def test_thinking_can_be_omitted() -> None:
    async def body(post: Post) -> None:
        thinking = {"type": "adaptive", "display": "omitted"}
        for got in (await post(thinking=thinking), folded(await post.events(thinking=thinking))):
            assert [block["type"] for block in got["content"]] == ["thinking", "text"]
            assert got["content"][0]["thinking"] == ""
            assert got["content"][0]["signature"]

    run(body, "<think>\nI think.\n</think>\n\nYes.")


def test_an_empty_message() -> None:
    async def body(post: Post) -> None:
        for got in (await post(), folded(await post.events())):
            assert (got["content"], got["stop_reason"]) == ([], "end_turn")

    run(body, "")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("{}", {}),
        ("null", {}),
        ('"[1]"', {"INVALID_JSON": "[1]"}),
        ('"x"', {"INVALID_JSON": "x"}),
    ],
)
def test_inputs_that_are_no_objects(arguments: str, wanted: dict[str, Any]) -> None:
    async def body(post: Post) -> None:
        for got in (await post(tools=[TOOL]), folded(await post.events(tools=[TOOL]))):
            assert [block["input"] for block in got["content"]] == [wanted]
            assert got["stop_reason"] == "tool_use"

    run(body, CALL % arguments)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", "{}"),
        (' {"a": [1e40, 123456789012345678901234567890]}', None),
        ('{"a": tru}', '{"INVALID_JSON":"{\\"a\\": tru}"}'),
        ('{"a": "', '{"INVALID_JSON":"{\\"a\\": \\""}'),
        ('{"a":' * 100_000, '{"INVALID_JSON":' + json.dumps('{"a":' * 100_000) + "}"),
    ],
)
def test_inputs(arguments: str, wanted: str | None) -> None:
    assert bytes(call_input(arguments)).decode() == (arguments if wanted is None else wanted)


def test_a_call_that_is_cut() -> None:
    async def body(post: Post) -> None:
        got = await post(tools=[TOOL], max_tokens=len(CALL % '{"city": "Pa') - 15)
        (block,) = got["content"]
        assert list(block["input"]) == ["INVALID_JSON"]
        assert (got["stop_reason"], got["stop_sequence"]) == ("max_tokens", None)
        events = await post.events(tools=[TOOL], max_tokens=got["usage"]["output_tokens"])
        assert events[-3]["type"] == "content_block_stop"
        assert events[-2]["delta"]["stop_reason"] == "max_tokens"

    run(body, PARIS)


def test_stop_reasons() -> None:
    async def body(post: Post) -> None:
        for more, reason, sequence, text in (
            ({}, "end_turn", None, "One, two, three."),
            ({"max_tokens": 5}, "max_tokens", None, "One, "),
            ({"stop_sequences": ["x", "thr"]}, "stop_sequence", "thr", "One, two, "),
        ):
            for got in (await post(**more), folded(await post.events(**more))):
                assert (got["stop_reason"], got["stop_sequence"]) == (reason, sequence)
                assert got["content"] == [{"type": "text", "text": text}]

    run(body, "One, two, three.")


def test_max_tokens_beyond_the_context() -> None:
    prompt = len("user:How is the weather?\nassistant:")

    async def body(post: Post) -> None:
        for got in (await post(), folded(await post.events())):
            assert got["stop_reason"] == "model_context_window_exceeded"
            assert got["usage"]["output_tokens"] == 4
        got = await post(max_tokens=4)
        assert (got["stop_reason"], got["usage"]["output_tokens"]) == ("max_tokens", 4)
        too_long = await post(400, messages=[{"role": "user", "content": "a" * prompt}])
        assert "maximum context length" in too_long["error"]["message"]

    run(body, "a" * 100, max_model_len=prompt + 4)


def test_several_turns_with_tools() -> None:
    async def body(post: Post) -> None:
        messages = [USER]
        for _ in range(3):
            got = folded(await post.events(messages=messages, tools=[TOOL]))
            calls = [block for block in got["content"] if block["type"] == "tool_use"]
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": "Rain."}
                for call in calls
            ]
            messages = [
                *messages,
                {"role": "assistant", "content": got["content"]},
                {"role": "user", "content": results},
            ]
        rendered = post.server.renderer.rendered[-1]
        roles = ["user", *["assistant", "tool", "tool"] * 2]
        assert [message["role"] for message in rendered.messages] == roles
        _, assistant, *results = rendered.messages[:4]
        assert (assistant["content"], assistant["reasoning"]) == ("Let me see.", "I look it up.")
        functions = [call["function"] for call in assistant["tool_calls"]]
        assert functions[1] == {"name": "get_weather", "arguments": {"city": "Oslo"}}
        ids = [call["id"] for call in assistant["tool_calls"]]
        assert [each["tool_call_id"] for each in results] == ids
        assert rendered.tools is not None
        assert rendered.tools[0]["function"]["name"] == "get_weather"

    run(body)


def test_tools_that_may_not_be_called() -> None:
    async def body(post: Post) -> None:
        got = await post(tools=[TOOL], tool_choice={"type": "none"})
        assert got["content"][-1]["text"].endswith(OSLO)
        one = {"type": "auto", "disable_parallel_tool_use": True}
        got = await post(tools=[TOOL], tool_choice=one)
        assert plain(got["content"]) == BLOCKS[:-1]
        assert got["stop_reason"] == "tool_use"

    run(body)


def test_a_prefilled_answer_is_continued() -> None:
    async def body(post: Post) -> None:
        got = await post(messages=[USER, {"role": "assistant", "content": "<think>I"}])
        assert plain(got["content"]) == [
            {"type": "thinking", "thinking": "think."},
            {"type": "text", "text": "Yes."},
        ]

    run(body, "think.\n</think>\n\nYes.")


def test_what_passes_through() -> None:
    async def body(post: Post) -> None:
        params = {"do_remote_decode": True}
        got = await post(kv_transfer_params=params, cache_salt="s", request_id="mine")
        assert got["id"] == "msg_mine"
        assert got["kv_transfer_params"]["remote_engine_id"] == "fake"
        (*_, last, _) = await post.events(kv_transfer_params=params)
        assert last["kv_transfer_params"] == got["kv_transfer_params"]
        assert post.server.engine.submitted[0].request.cache_salt == "s"

    run(body, "a")


def test_counting_tokens() -> None:
    async def body(post: Post) -> None:
        path = "/v1/messages/count_tokens"
        content = [{"type": "text", "text": "How is the weather?"}]
        messages = [{"role": "user", "content": content}]
        got = await post(path=path, messages=messages, max_tokens=None, system="Hi", tools=[TOOL])
        assert got == {"input_tokens": len("system:Hi\nuser:How is the weather?\nassistant:")}
        assert len(post.server.renderer.rendered[-1].tools or ()) == 1
        assert not post.server.engine.submitted
        await post(400, path, messages=[])
        kwargs = {"chat_template": "x"}
        refused = await post(400, path, chat_template_kwargs=kwargs)
        assert "chat_template_kwargs" in refused["error"]["message"]
        await post(404, path, model="absent")

    run(body)


def check_error(response: httpx.Response, status: int, kind: str) -> str:
    assert response.status_code == status, response.text
    answer = response.json()
    assert (answer["type"], answer["error"]["type"]) == ("error", kind)
    assert set(answer) == {"type", "error"} and set(answer["error"]) == {"type", "message"}
    return answer["error"]["message"]


def test_errors() -> None:
    schema = {"type": "json_schema", "schema": {"type": "nonsense"}}

    async def body(post: Post) -> None:
        for status, kind, words, more in (
            (400, "invalid_request_error", "`max_tokens` is required", {"max_tokens": None}),
            (
                400,
                "invalid_request_error",
                "output_config.format",
                {"output_config": {"format": schema}},
            ),
            (400, "invalid_request_error", "has no watermark", {"watermarking": True}),
            (400, "invalid_request_error", "the plugin 'no_such'", {"vllm_xargs": {"no_such": 1}}),
            (404, "not_found_error", "absent", {"model": "absent"}),
            (413, "request_too_large", "--max-body-bytes", {"system": "a" * 100_000}),
        ):
            assert words in check_error(
                await post.raw(status, "/v1/messages", **more), status, kind
            )
        client = post.server.client
        for response, status in (
            (await client.get("/v1/messages"), 405),
            (await client.post("/v1/messages", content=b"{"), 400),
            (await client.post("/v1/messages", json={}, headers={"origin": "http://x"}), 403),
        ):
            kind = "permission_error" if status == 403 else "invalid_request_error"
            check_error(response, status, kind)
        post.server.state.lifecycle.begin_drain()
        draining = await post.raw(503, "/v1/messages")
        check_error(draining, 503, "overloaded_error")
        assert draining.headers["retry-after"]
        other = (await client.post("/v1/completions", json={})).json()
        assert other["error"]["code"] == 503

    run(body)


def test_a_refused_thread_has_the_reason_that_clients_act_upon() -> None:
    async def body(post: Post) -> None:
        error = (await post(400, thread={"type": "create"}))["error"]
        assert error["details"] == {"error_code": "thread_unsupported_request"}
        assert "details" not in (await post(400, temperature=-1))["error"]

    run(body)


def test_a_failure_of_the_engine() -> None:
    async def body(post: Post) -> None:
        check_error(await post.raw(500, "/v1/messages"), 500, "api_error")
        *before, last = await post.events()
        assert before[0]["type"] == "message_start"
        failure = {"type": "api_error", "message": "The runner failed this request."}
        assert last == {"type": "error", "error": failure}

    run(body, "abc", fail_at_position=2)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_keys(path: str) -> None:
    async def main() -> None:
        async with fake_server(api_keys=["k"]) as server:
            content = {"max_tokens": 1, "messages": [USER]}
            for headers, status in (
                ({"x-api-key": "k"}, 200),
                ({"authorization": "Bearer k"}, 200),
                ({"x-api-key": "wrong"}, 401),
                ({}, 401),
            ):
                response = await server.client.post(path, json=content, headers=headers)
                assert response.status_code == status
                if status == 401:
                    check_error(response, 401, "authentication_error")

    asyncio.run(main())


def test_a_model_of_another_task_has_no_messages() -> None:
    async def main() -> None:
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            response = await server.client.post("/v1/messages", json={})
            assert "/v1/embeddings" in check_error(response, 404, "not_found_error")

    asyncio.run(main())
