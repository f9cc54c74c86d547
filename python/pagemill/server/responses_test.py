"""`/v1/responses` with the `openai` client and a model that is scripted."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.reasoning_formats import THINK
from pagemill.render.output_machine import Formats
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

BOTH = Formats(THINK, HERMES)
TOOL: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
OUTPUT = f"<think>\nI look it up.\n</think>\n\nLet me see.\n{CALL % 'Paris'}\n{CALL % 'Oslo'}"
QUESTION = "How is the weather?"
KEYS = [ApiKey.of(name, Caller(name)) for name in ("red", "blue")]


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def run(
    test: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]],
    output: str = OUTPUT,
    formats: Formats | None = BOTH,
    *,
    store: str | None = None,
    options: FakeOptions | None = None,
    keys: list[ApiKey] | None = None,
) -> None:
    async def body() -> None:
        async with fake_server(
            options or FakeOptions(next_token=script(output)),
            renderer=FakeRenderer(formats),
            max_model_len=4096,
            response_store=store,
            keys=keys or [],
        ) as server:
            await test(client_of(server, "red"), server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


def client_of(server: FakeServer, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key=key, base_url="http://fake/v1", http_client=server.client, max_retries=0
    )


async def create(client: openai.AsyncOpenAI, **more: Any) -> Any:
    fields: dict[str, Any] = {"model": "fake", "input": QUESTION, "tools": [TOOL], **more}
    return await client.responses.create(**fields)


async def events_of(server: FakeServer, **more: Any) -> list[dict[str, Any]]:
    """The events of a stream, whose lines and numbers are checked."""
    body = {"input": QUESTION, "tools": [TOOL], "stream": True, **more}
    response = await server.client.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    events: list[dict[str, Any]] = []
    for number, block in enumerate(response.text.removesuffix("\n\n").split("\n\n")):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def plain(response: dict[str, Any]) -> dict[str, Any]:
    """`response` without what differs between two responses to one request."""
    fresh = ("id", "call_id", "created_at", "completed_at")
    kept = {key: value for key, value in response.items() if key not in fresh}
    return {**kept, "output": [plain(item) for item in kept.get("output", ())]}


def test_a_response_with_reasoning_text_and_two_calls() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, instructions="Be brief.", metadata={"a": "b"})
        reasoning, message, *calls = response.output
        assert reasoning.content[0].text == "I look it up." and reasoning.summary == []
        assert response.output_text == message.content[0].text == "Let me see."
        assert message.content[0].annotations == []
        assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Oslo"]
        assert len({call.call_id for call in calls}) == 2
        assert {item.status for item in response.output} == {"completed"}
        assert response.status == "completed" and response.completed_at >= response.created_at
        assert response.incomplete_details is None and response.error is None
        assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
        assert (response.temperature, response.top_p) == (1.0, 1.0)
        assert response.text.format.type == "text" and response.tool_choice == "auto"
        usage = response.usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert usage.output_tokens == len(OUTPUT) + 1
        assert usage.output_tokens_details.reasoning_tokens == len("\nI look it up.\n</think>")
        (rendered,) = server.renderer.rendered
        assert rendered.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": QUESTION},
        ]
        function = {"name": "get_weather", "parameters": {"type": "object"}}
        assert rendered.tools == [{"type": "function", "function": function}]

    run(body)


def test_every_event_of_a_stream() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = await events_of(server)
        kinds = [event["type"].removeprefix("response.") for event in events]
        text = ["output_item.added", "{0}_part.added", "{1}_text.delta", "{1}_text.done"]
        text += ["{0}_part.done", "output_item.done"]
        arguments = "function_call_arguments"
        call = ["output_item.added", f"{arguments}.delta", f"{arguments}.done", "output_item.done"]
        assert [kind for at, kind in enumerate(kinds) if kind != kinds[at - 1]] == [
            *("created", "in_progress"),
            *(kind.format("reasoning", "reasoning") for kind in text),
            *(kind.format("content", "output") for kind in text),
            *(*call, *call, "completed"),
        ]
        for kind, field in (("output_text", "text"), ("reasoning_text", "text")):
            deltas = [e["delta"] for e in events if e["type"] == f"response.{kind}.delta"]
            (done,) = [e for e in events if e["type"] == f"response.{kind}.done"]
            assert "".join(deltas) == done[field] and len(deltas) > 5
        items = {event["output_index"]: event["item"] for event in events if "item" in event}
        for event in events:
            if "item_id" in event:
                assert items[event["output_index"]]["id"] == event["item_id"]
        assert list(items.values()) == events[-1]["response"]["output"]
        assert events[0]["response"]["status"] == "in_progress"
        assert events[0]["response"]["output"] == []

    run(body)


@pytest.mark.parametrize("interval", [1, 3, 1000])
def test_a_stream_ends_with_the_response_that_is_not_streamed(interval: int) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        whole = (await create(client)).to_dict()
        *_, last = await events_of(server, stream_interval=interval)
        assert plain(last["response"]) == plain(whole)
        async with client.responses.stream(model="fake", input=QUESTION, tools=[TOOL]) as stream:
            async for _ in stream:
                pass
            assert plain((await stream.get_final_response()).to_dict())["output"][1:2] == [
                {**plain(whole)["output"][1], "content": [_parsed(whole)]}
            ]

    run(body)


def _parsed(whole: dict[str, Any]) -> dict[str, Any]:
    return {**whole["output"][1]["content"][0], "parsed": None}


def test_calls_and_results_over_several_turns(store: str) -> None:
    """The same conversation reaches the template by its items and by the id of the last one."""

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        items: list[Any] = [{"role": "user", "content": QUESTION}]
        previous: str | None = None
        new: list[Any] = items
        for turn in range(3):
            by_id = await create(client, input=new, previous_response_id=previous)
            assert by_id.previous_response_id == previous and by_id.store
            by_items = await create(client, input=items, store=False, instructions=None)
            assert not by_items.store
            first, second = server.renderer.rendered[-2:]
            assert first.messages == second.messages
            assert len(first.messages) == 1 + 3 * turn
            new = [
                {"type": "function_call_output", "call_id": item.call_id, "output": "Rain."}
                for item in by_id.output
                if item.type == "function_call"
            ]
            items = [*items, *(item.to_dict() for item in by_id.output), *new]
            previous = by_id.id

    run(body, store=store)


def test_tokens_are_counted_as_a_response_has_them(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client, input=QUESTION)
        conversation = (await client.conversations.create()).id
        fields: list[dict[str, Any]] = [
            {"input": QUESTION, "tools": []},
            {"input": QUESTION, "tools": [TOOL], "instructions": "Be brief."},
            {"input": "And now?", "previous_response_id": first.id, "tools": [TOOL]},
            {"input": QUESTION, "conversation": conversation},
        ]
        counts: list[int] = []
        for each in fields:
            counted = await client.responses.input_tokens.count(model="fake", **each)
            assert counted.object == "response.input_tokens"
            answer = await client.responses.create(model="fake", max_output_tokens=2, **each)
            assert answer.usage is not None
            counts.append(counted.input_tokens)
            assert counted.input_tokens == answer.usage.input_tokens
        assert counts[0] < counts[1] and counts[0] < counts[2]
        items = (await client.conversations.items.list(conversation)).data
        assert len([item for item in items if item.type == "message"]) == 2  # of the response
        with pytest.raises(openai.BadRequestError, match="`tools` of type `mcp`"):
            mcp: Any = {"type": "mcp", "server_label": "a"}
            await client.responses.input_tokens.count(model="fake", input="a", tools=[mcp])
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            await client.responses.input_tokens.count(input="a", previous_response_id="resp_0")

    run(body, output="Hi", store=store)


def test_instructions_are_of_one_response(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client, instructions="Be brief.", tools=[])
        await create(client, previous_response_id=first.id, tools=[])
        roles = [message["role"] for message in server.renderer.rendered[-1].messages]
        assert roles == ["user", "assistant", "user"]

    run(body, "Yes.", store=store)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_output_that_ends_early(streamed: bool, store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        fields: dict[str, Any] = {"max_output_tokens": 3, "tools": []}
        if streamed:
            *_, last = await events_of(server, **fields)
            assert last["type"] == "response.incomplete"
            response = last["response"]
        else:
            response = (await create(client, **fields)).to_dict()
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        (message,) = response["output"]
        assert (message["status"], message["content"][0]["text"]) == ("incomplete", "Yes")
        # Nothing new to say: the message is continued.
        continued = await create(client, input=[], previous_response_id=response["id"], tools=[])
        assert continued.status == "completed"
        assert server.renderer.rendered[-1].messages[-1]["content"] == "Yes"

    run(body, "Yes, it is.", store=store)


def test_a_call_that_ends_early_is_incomplete() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, max_output_tokens=len(OUTPUT) - 20)
        *_, last = await events_of(server, max_output_tokens=len(OUTPUT) - 20)
        assert [item.status for item in response.output] == ["completed"] * 3 + ["incomplete"]
        assert plain(last["response"]) == plain(response.to_dict())

    run(body)


def test_no_text_is_an_empty_message() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, tools=[])
        assert [item.type for item in response.output] == ["message"]
        assert response.output_text == ""

    run(body, "")


def test_reasoning_can_be_left_out() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, extra_body={"include_reasoning": False})
        assert [item.type for item in response.output] == ["message", *["function_call"] * 2]
        *_, last = await events_of(server, include_reasoning=False)
        assert plain(last["response"]) == plain(response.to_dict())

    run(body)


def test_log_probabilities_are_those_of_the_answer() -> None:
    async def body(_: openai.AsyncOpenAI, server: FakeServer) -> None:
        wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        *events, last = await events_of(server, **wanted)
        _, message, *_ = last["response"]["output"]
        (part,) = message["content"]
        assert "".join(entry["token"] for entry in part["logprobs"]).strip() == "Let me see."
        assert {len(entry["top_logprobs"]) for entry in part["logprobs"]} == {2}
        deltas = [each for each in events if each["type"] == "response.output_text.delta"]
        assert all(len(each["logprobs"]) >= len(each["delta"]) for each in deltas)
        said = [entry for each in deltas for entry in each["logprobs"]]
        assert said == part["logprobs"][: len(said)]
        (done,) = [each for each in events if each["type"] == "response.output_text.done"]
        assert done["logprobs"] == part["logprobs"]
        request = {"input": QUESTION, "tools": [TOOL], **wanted}
        whole = (await server.client.post("/v1/responses", json=request)).json()
        assert plain(whole) == plain(last["response"])
        assert whole["top_logprobs"] == 2

    run(body)


def test_each_part_of_the_answer_has_its_log_probabilities() -> None:
    async def body(_: openai.AsyncOpenAI, server: FakeServer) -> None:
        wanted = {"include": ["message.output_text.logprobs"]}
        last = (await events_of(server, **wanted))[-1]
        request = {"input": QUESTION, "tools": [TOOL], **wanted}
        whole = (await server.client.post("/v1/responses", json=request)).json()
        for response in (last["response"], whole):
            parts = [item["content"][0] for item in response["output"] if "content" in item]
            spelled = ["".join(each["token"] for each in part["logprobs"]) for part in parts]
            assert [text.strip() for text in spelled] == [part["text"] for part in parts]

    run(body, f"Let me see.\n{CALL % 'Paris'}\nIt is warm.")


@pytest.mark.parametrize("at", [0, 3])
def test_a_failure_within_a_stream(at: int) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = await events_of(server, tools=[])
        kinds = [event["type"] for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-2:] == ["error", "response.failed"]
        assert events[-2]["message"] == "The runner failed this request."
        response = events[-1]["response"]
        assert response["status"] == "failed" and response["error"]["code"] == "server_error"
        assert [item["status"] for item in response["output"]] == ["incomplete"][: min(at, 1)]
        with pytest.raises(openai.InternalServerError, match="The runner failed"):
            await create(client, tools=[])

    run(body, formats=None, options=FakeOptions(fail_at_position=at))


def test_stored_responses_and_their_items(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client)
        assert (await client.responses.retrieve(first.id)).to_dict() == first.to_dict()
        *_, last = await events_of(server, previous_response_id=first.id, input=[])
        second = last["response"]
        assert (await client.responses.retrieve(second["id"])).to_dict() == second
        kinds = ["message", "reasoning", "message", "function_call", "function_call"]
        listed = client.responses.input_items.list(second["id"], order="asc", limit=2)
        assert [item.type async for item in listed] == kinds
        page = await client.responses.input_items.list(second["id"], limit=4)
        assert [item.type for item in page.data] == kinds[:0:-1]
        assert page.to_dict()["has_more"]
        await client.responses.delete(first.id)
        for attempt in (
            client.responses.retrieve(first.id),
            client.responses.delete(first.id),
            client.responses.input_items.list(first.id),
            create(client, previous_response_id=first.id),
        ):
            with pytest.raises(openai.NotFoundError, match=first.id):
                await attempt
        await create(client, previous_response_id=second["id"], input=QUESTION)

    run(body, store=store)


def test_pages_are_checked(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        path = f"/v1/responses/{(await create(client)).id}/input_items"
        for query, status, param in (
            ("limit=0", 400, "limit"),
            ("limit=101", 400, "limit"),
            ("limit=x", 400, "limit"),
            ("order=up", 400, "order"),
            ("after=absent", 404, "after"),
        ):
            response = await server.client.get(f"{path}?{query}")
            assert (response.status_code, response.json()["error"]["param"]) == (status, param)
        (only,) = (await server.client.get(path)).json()["data"]
        empty = (await server.client.get(path, params={"after": only["id"]})).json()
        ends = {"first_id": None, "last_id": None}
        assert empty == {"object": "list", "data": [], "has_more": False, **ends}

    run(body, store=store)


async def until_ended(client: openai.AsyncOpenAI, name: str) -> Any:
    while (response := await client.responses.retrieve(name)).status == "in_progress":
        await asyncio.sleep(0.01)
    return response


def test_a_response_in_the_background(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        server.engine.paused = True
        begun = await create(client, background=True)
        assert (begun.status, begun.output, begun.background) == ("in_progress", [], True)
        with pytest.raises(openai.BadRequestError, match="in progress"):
            await create(client, previous_response_id=begun.id)
        server.engine.paused = False
        ended = await until_ended(client, begun.id)
        whole = await create(client)
        assert plain({**ended.to_dict(), "background": False}) == plain(whole.to_dict())
        assert (await client.responses.cancel(begun.id)).to_dict() == ended.to_dict()
        await create(client, previous_response_id=begun.id)
        with pytest.raises(openai.BadRequestError, match="background: true"):
            await client.responses.cancel(whole.id)
        assert server.state.lifecycle.active == 0

    run(body, store=store)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_response_in_the_background_is_cancelled(deleted: bool, store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        server.engine.most_tokens = 3
        begun = await create(client, background=True, tools=[])
        if deleted:
            await client.responses.delete(begun.id)
        else:
            assert (await client.responses.cancel(begun.id)).status == "cancelled"
        while server.async_engine.num_live or server.state.lifecycle.active:
            await asyncio.sleep(0.01)
        if not deleted:
            assert (await client.responses.retrieve(begun.id)).status == "cancelled"

    run(body, store=store, options=FakeOptions())


def test_a_response_in_the_background_that_fails(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        begun = await create(client, background=True, tools=[])
        ended = await until_ended(client, begun.id)
        assert ended.status == "failed" and ended.error is not None
        assert ended.error.message == "The runner failed this request."

    run(body, store=store, options=FakeOptions(fail_at_position=3))


# By the system's monotonic clock: long ago, and before the machine was started.
@pytest.mark.parametrize("seen", [-1000.0, 1e12])
def test_a_response_whose_process_has_ended_has_failed(store: str, seen: float) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        begun = await create(client, background=True)
        await until_ended(client, begun.id)
        with contextlib.closing(sqlite3.connect(store)) as file:
            response = json.dumps({**begun.to_dict(), "status": "in_progress"})
            query = "UPDATE responses SET seen_running = ?, response = ?"
            file.execute(query, (seen, response))
            file.commit()
        ended = await client.responses.retrieve(begun.id)
        assert ended.status == "failed" and ended.error is not None
        assert "has ended" in ended.error.message

    run(body, store=store)


def test_conversations_are_bounded(store: str) -> None:
    """The fake server takes bodies of 100,000 bytes."""

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x" * 60_000}
        items = [hidden, {"role": "user", "content": "a"}]
        first = await create(client, input=items)
        second = await create(client, input=items, previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError, match="larger than a request may be"):
            await create(client, previous_response_id=second.id)

    run(body, store=store)


def test_names_of_responses_may_be_anything(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        for name in ("%00", "%ED%A0%80", "%FF", "x" * 513, "a%2Fb", "%27%3B--"):
            got = await server.client.get(f"/v1/responses/{name}")
            assert got.status_code in (400, 404), (name, got.text)

    run(body, store=store)


def test_responses_of_another_key_do_not_exist(store: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client)
        other = client_of(server, "blue")
        for attempt in (
            other.responses.retrieve(response.id),
            other.responses.delete(response.id),
            create(other, previous_response_id=response.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await attempt
        assert (await client.responses.retrieve(response.id)).id == response.id

    run(body, store=store, keys=KEYS)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_store_that_fails_does_not_fail_responses(streamed: bool, tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        if streamed:
            *_, last = await events_of(server)
            name = last["response"]["id"]
        else:
            name = (await create(client)).id
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(name)

    run(body, store=str(tmp_path / "absent" / "store"))


def test_a_server_without_a_store_says_so() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client)
        assert response.store is False
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(response.id)

    run(body)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": []}, "input"),
        ({"input": "x" * 5000}, "input"),
        ({"max_output_tokens": 5000}, "max_output_tokens"),
        ({"previous_response_id": "resp_absent"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"background": True, "stream": True}, "background"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{**TOOL, "parameters": 5}]}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "unknown"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"type": "objec"}}}},
            "text.format",
        ),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ],
)
def test_refusals(more: dict[str, Any], param: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.APIStatusError) as caught:
            await create(client, **more)
        absent = ("previous_response_id", "conversation")
        assert caught.value.status_code == (404 if param in absent else 400)
        error: Any = caught.value.body
        assert error["param"] == param
        assert "messages" not in error["message"]

    run(body)
