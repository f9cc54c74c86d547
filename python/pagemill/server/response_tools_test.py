"""`/v1/responses` with tools that the server runs: a scripted model and fake tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.output_machine import Formats
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, turns
from pagemill.server.testing.fake_tools import FakeTools
from pagemill.server.testing.fake_tools import written_call as call
from pagemill.server.tools import servers
from pagemill.server.tools.tool import ToolError

MCP: dict[str, Any] = {"type": "mcp", "server_label": "weather", "require_approval": "never"}
FUNCTION: dict[str, Any] = {"type": "function", "name": "mine", "parameters": {"type": "object"}}
QUESTION = "How is the weather?"
KEYS = [
    ApiKey.of("all", Caller("all")),
    ApiKey.of("one", Caller("one", limits=KeyLimits(1, None, None))),
    ApiKey.of("some", Caller("some", scopes=frozenset({Scope.INFERENCE}))),
]


Test = Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]]


def run(
    test: Test,
    outputs: Sequence[str],
    tools: Sequence[FakeTools],
    *,
    store: str | None = None,
    keys: Sequence[ApiKey] = (),
) -> None:
    async def body() -> None:
        async with fake_server(
            turns(*outputs),
            renderer=FakeRenderer(Formats(THINK, HERMES)),
            max_model_len=4096,
            response_store=store,
            tools=tools,
            keys=keys,
        ) as server:
            client = openai.AsyncOpenAI(
                api_key="all", base_url="http://fake/v1", http_client=server.client, max_retries=0
            )
            await test(client, server)
            assert server.async_engine.num_live == 0
            assert all(each.num_running == 0 for each in tools)
        assert all(each.closed for each in tools)

    asyncio.run(body())


async def create(client: openai.AsyncOpenAI, **more: Any) -> Any:
    fields: dict[str, Any] = {"model": "fake", "input": QUESTION, "tools": [MCP], **more}
    return await client.responses.create(**fields)


async def events_of(client: openai.AsyncOpenAI, **more: Any) -> list[Any]:
    events = [event async for event in await create(client, stream=True, **more)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def plain(item: Any) -> Any:
    """An item without what differs between two responses to one request."""
    fresh = ("id", "call_id")
    return {key: value for key, value in item.to_dict().items() if key not in fresh}


TWO_CALLS = f"<think>\nI ask.\n</think>\n\nOne moment.\n{call('Oslo')}\n{call('Rome')}"


def test_a_call_and_the_answer() -> None:
    tools = FakeTools()

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client)
        kinds = ["mcp_list_tools", "reasoning", "message", "mcp_call", "mcp_call", "message"]
        assert [item.type for item in response.output] == kinds
        assert response.status == "completed" and response.error is None
        listed, _, _, oslo, rome, answer = response.output
        assert [tool.name for tool in listed.tools] == ["get_weather", "fail", "raise", "hang"]
        assert listed.tools[0].annotations == {"readOnlyHint": True} and listed.error is None
        assert (oslo.name, oslo.server_label, oslo.status) == (
            "get_weather",
            "weather",
            "completed",
        )
        assert json.loads(oslo.arguments) == {"city": "Oslo"} and oslo.output == "Oslo: rain"
        assert rome.output == "Rome: rain" and answer.content[0].text == "It rains."
        assert len(tools.calls) == 2
        first, second = server.renderer.rendered
        assert first.tools == second.tools and first.tools is not None
        assert [tool["function"]["name"] for tool in first.tools][0] == "weather__get_weather"
        _, said, *results = second.messages
        assert said["content"] == "One moment." and said["reasoning"] == "I ask."
        ids = [each["id"] for each in said["tool_calls"]]
        assert [(each["role"], each["content"]) for each in results] == [
            ("tool", "Oslo: rain"),
            ("tool", "Rome: rain"),
        ]
        assert [each["tool_call_id"] for each in results] == ids
        usage = response.usage
        assert usage.output_tokens == len(TWO_CALLS) + 1 + len("It rains.") + 1
        assert usage.input_tokens > 2 * len(QUESTION)
        reasoning = usage.output_tokens_details.reasoning_tokens
        assert reasoning == len("\nI ask.\n</think>")

    run(body, [TWO_CALLS, "It rains."], [tools])


def test_every_event_of_a_stream() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = await events_of(client, stream_options=None)
        kinds = [event.type.removeprefix("response.") for event in events]
        named = [kind for kind in kinds if kind.startswith(("mcp", "output_item"))]
        item = ["output_item.added", "output_item.done"]
        call_events = [
            "output_item.added",
            "mcp_call.in_progress",
            "mcp_call_arguments.delta",
            "mcp_call_arguments.done",
        ]
        assert [kind for at, kind in enumerate(named) if kind != named[at - 1]] == [
            "output_item.added",
            "mcp_list_tools.in_progress",
            "mcp_list_tools.completed",
            "output_item.done",
            *(*item, *item),
            *(*call_events, *call_events),
            *(*["mcp_call.completed", "output_item.done"] * 2, *item),
        ]
        items = {event.output_index: event.item for event in events if hasattr(event, "item")}
        for event in events:
            if hasattr(event, "item_id"):
                assert items[event.output_index].id == event.item_id
        assert list(items.values()) == events[-1].response.output

    run(body, [TWO_CALLS, "It rains."], [FakeTools()])


def test_a_stream_ends_with_the_response_that_is_not_streamed(tmp_path: Path) -> None:
    outputs = [TWO_CALLS, "It rains."]
    seen: list[Any] = []

    async def streamed(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        seen.append((await events_of(client))[-1].response)

    async def whole(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        seen.append(await create(client))

    async def background(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        begun = await create(client, background=True)
        assert begun.status == "in_progress" and begun.output == []
        while (got := await client.responses.retrieve(begun.id)).status == "in_progress":
            await asyncio.sleep(0.01)
        seen.append(got)

    for each in (streamed, whole, background):
        run(each, outputs, [FakeTools()], store=str(tmp_path / "store"))
    first, *others = [[plain(item) for item in response.output] for response in seen]
    assert all(first == other for other in others)
    assert len({response.usage.to_json() for response in seen}) == 1


def test_later_requests_continue_with_the_same_conversation(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client)
        second = await create(client, input="And now?", previous_response_id=first.id)
        assert [item.type for item in second.output] == ["message"]  # the tools are listed already
        items = [{"role": "user", "content": QUESTION}]
        items += [item.to_dict() for item in first.output]
        await create(client, input=[*items, {"role": "user", "content": "And now?"}])
        by_id, by_items = server.renderer.rendered[-2:]
        assert by_id.messages == by_items.messages
        roles = [message["role"] for message in by_id.messages]
        assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]
        live = server.renderer.rendered[1].messages
        stored = by_id.messages[: len(live)]
        assert [_without_ids(each) for each in live] == [_without_ids(each) for each in stored]

    run(body, [TWO_CALLS, "It rains."], [FakeTools()], store=str(tmp_path / "store"))


def _without_ids(message: Any) -> Any:
    calls = [each["function"] for each in message.get("tool_calls", [])]
    return {**message, "tool_calls": calls, "tool_call_id": None}


@pytest.mark.parametrize(
    ("output", "error", "text"),
    [
        (call("Oslo", "weather__fail"), "mcp_tool_execution_error", "Error: Oslo: rain"),
        (call("Oslo", "weather__raise"), "mcp_protocol_error", "Error: The tool is gone."),
        (
            '<tool_call>\n{"name": "weather__fail", "arguments": {"city": "O',
            "mcp_protocol_error",
            "Error: The arguments of the call are not a JSON object.",
        ),
    ],
)
def test_a_failure_of_a_tool_is_text_for_the_model(output: str, error: str, text: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client)
        _, failed, answer = response.output
        assert (failed.status, failed.output, failed.error.type) == ("failed", None, error)
        assert answer.content[0].text == "I cannot tell."
        assert server.renderer.rendered[-1].messages[-1]["content"] == text
        again = [{"role": "user", "content": "a"}, failed.to_dict()]
        await create(client, input=again)
        assert server.renderer.rendered[-1].messages[-1]["content"] == text
        assert response.status == "completed"

    run(body, [output, "I cannot tell."], [FakeTools()])


def test_a_server_that_cannot_list_leaves_the_others() -> None:
    failing = FakeTools("gone", listing=ToolError("It is gone."))

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, tools=[{**MCP, "server_label": "gone"}, MCP])
        failed, listed, called, answer = response.output
        assert (failed.server_label, failed.error, failed.tools) == ("gone", "It is gone.", [])
        assert listed.error is None and called.status == "completed"
        assert answer.content[0].text == "Rain."
        choice = {"type": "mcp", "server_label": "gone"}
        events = await events_of(
            client, tools=[{**MCP, "server_label": "gone"}], tool_choice=choice
        )
        assert events[4].type == "response.mcp_list_tools.failed"
        assert events[-1].response.status == "completed"

    run(body, [call("Oslo"), "Rain."], [failing, FakeTools()])


def test_the_number_of_calls_is_bounded() -> None:
    tools = FakeTools()

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, max_tool_calls=3)
        _, *calls, last = response.output
        assert [item.status for item in calls] == ["completed"] * 3 + ["failed"]
        assert last.type == "message"  # no call: the model may make none any longer
        assert response.status == "completed" and len(tools.calls) == 3
        metrics = (await server.client.get("/metrics")).text
        labels = 'engine="0",model_name="fake",outcome="completed",server="weather"'
        assert f"pagemill:tool_calls_total{{{labels}}} 3.0" in metrics

    run(body, [f"{call('Oslo')}\n{call('Rome')}"], [tools])


def test_a_call_of_the_clients_function_ends_the_response(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client, tools=[FUNCTION, MCP])
        listed, made, mine = first.output
        assert (made.status, mine.type, mine.name) == ("completed", "function_call", "mine")
        output = {"type": "function_call_output", "call_id": mine.call_id, "output": "12"}
        second = await create(
            client, tools=[FUNCTION, MCP], input=[output], previous_response_id=first.id
        )
        assert second.output_text == "Done."
        _, said, *results = server.renderer.rendered[-1].messages
        assert len(said["tool_calls"]) == 2
        assert [each["content"] for each in results] == ["Oslo: rain", "12"]

    outputs = [f"{call('Oslo')}\n{call('x', 'mine')}", "Done."]
    run(body, outputs, [FakeTools()], store=str(tmp_path / "store"))


@pytest.mark.parametrize("by_operator", [False, True])
@pytest.mark.parametrize("approve", [False, True])
def test_a_call_that_needs_approval(approve: bool, by_operator: bool, tmp_path: Path) -> None:
    tools = FakeTools(requires_approval=by_operator)
    offer = MCP if by_operator else {"type": "mcp", "server_label": "weather"}

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client, tools=[offer])
        *_, request = first.output
        assert (request.type, request.name) == ("mcp_approval_request", "get_weather")
        assert json.loads(request.arguments) == {"city": "Oslo"} and tools.calls == []
        answer = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": approve,
        }
        second = await create(client, tools=[offer], input=[answer], previous_response_id=first.id)
        assert second.output_text == "Rain."
        assert len(tools.calls) == approve
        if approve:
            made, _ = second.output
            assert (made.approval_request_id, made.output) == (request.id, "Oslo: rain")
        text = "Oslo: rain" if approve else "Error: The user did not approve this call."
        assert server.renderer.rendered[-1].messages[-1]["content"] == text
        third = await create(client, tools=[offer], previous_response_id=second.id)
        assert len(tools.calls) == approve and third.output_text == "Rain."

    run(body, [call("Oslo"), "Rain."], [tools], store=str(tmp_path / "store"))


def test_some_tools_need_no_approval() -> None:
    tools = FakeTools()
    approval = {"never": {"read_only": True}}

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, tools=[{**MCP, "require_approval": approval}])
        _, made, asks = response.output
        assert (made.type, asks.type) == ("mcp_call", "mcp_approval_request")
        assert tools.calls == [("get_weather", {"city": "Oslo"})]

    run(body, [f"{call('Oslo')}\n{call('Rome', 'weather__fail')}"], [tools])


def test_the_request_chooses_tools() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, tools=[{**MCP, "allowed_tools": ["fail", "absent"]}])
        assert [tool.name for tool in response.output[0].tools] == ["fail"]
        shown = server.renderer.rendered[-1].tools
        assert shown is not None and len(shown) == 1

    run(body, ["Yes."], [FakeTools()])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_goes_away_ends_the_call(streamed: bool) -> None:
    tools = FakeTools()

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        request = asyncio.create_task(create(client, stream=streamed))
        while not tools.num_running:
            await asyncio.sleep(0.01)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        while tools.num_running:
            await asyncio.sleep(0.01)

    run(body, [call("Oslo", "weather__hang")], [tools])


def test_a_hanging_call_ends_with_the_time_of_the_request() -> None:
    tools = FakeTools()

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = await events_of(client, extra_body={"timeout": 2.0})
        (failed,) = [item for item in events[-1].response.output if item.type == "mcp_call"]
        assert failed.error.message == "The time of the request is over."
        assert events[-1].type == "response.failed"  # nor is there time for an answer

    run(body, [call("Oslo", "weather__hang"), "Rain."], [tools])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_failure_after_a_call_keeps_what_was_done(streamed: bool) -> None:
    """The second prompt is longer than the model's context."""

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        if streamed:
            response = (await events_of(client))[-1].response
        else:
            response = await create(client)
        assert response.status == "failed" and "`input`" in response.error.message
        assert [item.type for item in response.output] == ["mcp_list_tools", "mcp_call"]

    run(body, [call("Oslo")], [FakeTools(padding="x" * 5000)])


def test_a_first_generation_that_cannot_begin_is_refused() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.BadRequestError, match="`input`"):
            await create(client, input="a" * 5000)
        events = await events_of(client, input="a" * 5000)
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]

    run(body, ["Yes."], [FakeTools()])


@pytest.mark.parametrize(
    "tool",
    [
        {"server_url": "http://127.0.0.1:1/mcp"},
        {"authorization": "x"},
        {"headers": {"a": "b"}},
        {"connector_id": "connector_gmail"},
        {"server_label": "absent"},
        {"server_label": 5},
        {"allowed_tools": 5},
        {"allowed_tools": [5]},
        {"allowed_tools": {"read_only": "x"}},
        {"require_approval": "sometimes"},
        {"require_approval": {"always": {}}},
        {"require_approval": {"never": 5}},
    ],
)
def test_refusals(tool: dict[str, Any]) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        clash = {**FUNCTION, "name": "weather__mine"}
        for tools in ([{**MCP, **tool}], [MCP, MCP], [clash, MCP]):
            with pytest.raises(openai.BadRequestError) as caught:
                await create(client, tools=tools)
            assert caught.value.param == "tools"

    run(body, ["Yes."], [FakeTools()])


def test_approvals_are_checked() -> None:
    request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "weather",
        "name": "get_weather",
        "arguments": "{}",
    }
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    question = {"role": "user", "content": QUESTION}

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        for items in ([answer], [request, {**answer, "approve": 2}], [{**request, "name": 5}]):
            with pytest.raises(openai.BadRequestError) as caught:
                await create(client, input=items)
            assert caught.value.param == "input"
        with pytest.raises(openai.BadRequestError, match="`tools`"):
            await create(client, input=[question, request, answer], tools=[])
        items = [question, {**request, "name": "absent"}, answer]
        response = await create(client, input=items)
        assert response.output[1].error.message.startswith("There is no tool")

    run(body, ["Yes."], [FakeTools()])


def test_a_key_without_the_scope_is_refused() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        limited = client.with_options(api_key="some")
        assert (await create(limited, tools=[])).output_text == "Yes."
        with pytest.raises(openai.PermissionDeniedError, match="'tools'"):
            await create(limited)

    run(body, ["Yes."], [FakeTools()], keys=KEYS)


def test_a_response_that_waits_for_a_tool_is_in_progress(tmp_path: Path) -> None:
    tools = FakeTools()

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        limited = client.with_options(api_key="one")
        begun = await create(limited, background=True)
        while not tools.num_running:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError, match="concurrency"):
            await create(limited)
        await limited.responses.cancel(begun.id)
        while tools.num_running:
            await asyncio.sleep(0.01)
        while True:
            with contextlib.suppress(openai.RateLimitError):
                assert (await create(limited)).output_text == "Rain."
                break

    outputs = [call("Oslo", "weather__hang"), "Rain."]
    run(body, outputs, [tools], store=str(tmp_path / "store"), keys=KEYS)


def test_responses_with_tools_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_MAX_RESPONSES", 1)
    tools = FakeTools()

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        begun = await create(client, background=True)
        while not tools.num_running:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError, match="1 responses with tools"):
            await create(client)
        assert (await create(client, tools=[])).output_text == "Rain."
        await client.responses.cancel(begun.id)
        while tools.num_running:
            await asyncio.sleep(0.01)
        assert (await create(client)).output_text == "Rain."

    run(body, [call("Oslo", "weather__hang"), "Rain."], [tools], store=str(tmp_path / "store"))


@pytest.mark.parametrize("num_more", [0, 2])
def test_the_tokens_of_all_generations_are_bounded(num_more: int) -> None:
    written = call("Oslo")

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        fields = {"max_output_tokens": len(written) + 1 + num_more}
        for response in (await create(client, **fields), (await events_of(client, **fields))[-1]):
            response = getattr(response, "response", response)
            assert response.status == "incomplete"
            assert response.incomplete_details.reason == "max_output_tokens"
            _, made, *rest = response.output
            assert made.status == "completed" and response.output_text == "It rains."[:num_more]
            assert [item.status for item in rest] == ["incomplete"] * (num_more > 0)
            assert response.usage.output_tokens == fields["max_output_tokens"]

    outputs = [written, "It rains."]
    run(body, [*outputs, *outputs] if num_more else [written], [FakeTools()])
