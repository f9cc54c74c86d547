"""`/v1/realtime` over real connections, with a client of the `websockets` package."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import openai
import pytest
import websockets
from websockets.asyncio.client import connect

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.testing.fake_server import script
from pagemill.server.testing.realtime_service import Client, Service, message, run

CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
TOOLS = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]


def test_a_conversation() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            await client.send(
                "session.update", session={"type": "realtime", "instructions": "Be brief."}
            )
            updated = (await client.next("session.updated"))["session"]
            assert updated["instructions"] == "Be brief." and updated["model"] == "fake"
            first = await client.say(message("Hi"))
            assert first["previous_item_id"] is None
            await client.send("response.create")
            events = await client.until("response.done")
            kinds = [event["type"] for event in events]
            deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
            assert "".join(deltas) == "Yes. No." and len(deltas) > 1
            assert [kind for kind in kinds if kind != "response.output_text.delta"] == [
                *("response.created", "response.output_item.added", "conversation.item.added"),
                *("response.content_part.added", "response.output_text.done"),
                *("response.content_part.done", "response.output_item.done"),
                *("conversation.item.done", "response.done"),
            ]
            response = events[-1]["response"]
            assert response["status"] == "completed"
            assert response["usage"]["output_tokens"] == len("Yes. No.") + 1
            (item,) = response["output"]
            assert item["content"][0]["text"] == "Yes. No."
            assert {e["response_id"] for e in events if "response_id" in e} == {response["id"]}
            await client.say(message("Again"))
            await client.send("response.create")
            await client.until("response.done")
            rendered = service.server.renderer.rendered[-1].messages
            assert [(each["role"], each["content"]) for each in rendered] == [
                *(("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes. No.")),
                ("user", "Again"),
            ]

    run(body, FakeOptions(next_token=script("Yes. No.")))


def test_openais_client() -> None:
    async def body(service: Service) -> None:
        base = service.url.removesuffix("/realtime")
        client = openai.AsyncOpenAI(api_key="x", base_url=base.replace("ws", "http"))
        options = {"proxy": None}
        async with client.realtime.connect(
            model="fake", websocket_connection_options=options
        ) as connection:
            await connection.session.update(
                session={"type": "realtime", "output_modalities": ["text"]}
            )
            item: Any = message("Hi")
            await connection.conversation.item.create(item=item)
            await connection.response.create()
            text = ""
            async for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                elif event.type == "response.done":
                    break
            assert event.response.status == "completed" and event.response.usage is not None
            assert text == event.response.output[0].content[0].text == "Yes."

    run(body, FakeOptions(next_token=script("Yes.")))


def test_calls_of_functions() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            await client.say(message("Hi"))
            await client.send("response.create", response={"tools": TOOLS})
            events = await client.until("response.done")
            done = next(e for e in events if e["type"] == "response.function_call_arguments.done")
            assert json.loads(done["arguments"]) == {"a": 1}
            (call,) = events[-1]["response"]["output"]
            assert (call["type"], call["name"]) == ("function_call", "look")
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "5"}
            await client.say(output)
            await client.send("response.create")
            await client.until("response.done")
            rendered = service.server.renderer.rendered[-1].messages
            assert [each["role"] for each in rendered] == ["user", "assistant", "tool"]

    run(body, FakeOptions(next_token=script(f"<think>hm</think>{CALL}")))


def test_items() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            first = (await client.say({**message("a"), "id": "one"}))["item"]
            assert first["id"] == "one" and first["object"] == "realtime.item"
            await client.say({**message("b"), "id": "two"})
            before = await client.say({**message("c"), "id": "zero"}, previous_item_id="root")
            assert before["previous_item_id"] is None
            between = await client.say(message("d"), previous_item_id="one")
            assert between["previous_item_id"] == "one"
            await client.send("conversation.item.retrieve", item_id="two")
            found = (await client.next("conversation.item.retrieved"))["item"]
            assert found["content"][0]["text"] == "b"
            await client.send("conversation.item.delete", item_id="one")
            assert (await client.next("conversation.item.deleted"))["item_id"] == "one"
            await client.send("response.create", response={"conversation": "none"})
            events = await client.until("response.done")
            assert not any(e["type"].startswith("conversation.item") for e in events)
            texts = [each["content"] for each in service.server.renderer.rendered[-1].messages]
            assert texts == ["c", "d", "b"]
            reference = [{"type": "item_reference", "id": "two"}, message("e")]
            await client.send("response.create", response={"input": reference})
            await client.until("response.done")
            texts = [each["content"] for each in service.server.renderer.rendered[-1].messages]
            assert texts == ["b", "e"]
            error = await client.error("response.create", response={"input": [reference[0]] * 2})
            assert error["param"] == "input" and "'two' twice" in error["message"]
            absent = {"type": "item_reference", "id": "one"}
            error = await client.error("response.create", response={"input": [absent]})
            assert error["code"] == "NotFoundError"

    run(body, FakeOptions(next_token=script("x")))


def test_refusals_leave_the_session_as_it_is() -> None:
    cases: list[tuple[str, dict[str, Any], str | None]] = [
        ("input_audio_buffer.append", {"audio": ""}, "type"),
        ("conversation.item.create", {}, "item"),
        ("conversation.item.create", {"item": {"type": "x"}}, "item"),
        ("conversation.item.create", {"item": message("a"), "previous_item_id": "x"},
         "previous_item_id"),
        ("conversation.item.create", {"item": message("x" * 100_000)}, "item"),
        ("conversation.item.retrieve", {}, "item_id"),
        ("conversation.item.delete", {"item_id": "x"}, "item_id"),
        ("session.update", {"session": {"output_modalities": ["audio"]}}, "output_modalities"),
        ("session.update", {"session": {"temperature": -1}}, "temperature"),
        ("session.update", {"session": {"max_output_tokens": 0}}, "max_output_tokens"),
        ("response.create", {}, "input"),
        ("response.create", {"response": {"input": [message("a")], "tools": [{"type": "mcp"}]}},
         "tools"),
        ("response.create", {"response": {"input": 5}}, "input"),
        ("response.cancel", {}, "response_id"),
    ]  # fmt: skip

    async def body(service: Service) -> None:
        async with service.client() as client:
            for kind, fields, param in cases:
                error = await client.error(kind, **fields)
                assert error["param"] == param, (kind, fields, error)
            item = '{"type": "conversation.item.create", "item": 5}'
            for junk in ("{", "5", "[]", '{"type": 5}', item, "[" * 100_000, b"\xff"):
                await client.connection.send(junk)
                assert (await client.next("error"))["error"]["type"] == "invalid_request_error"
            await client.say(message("Hi"))
            await client.send("response.create", response={"max_output_tokens": 2})
            response = (await client.until("response.done"))[-1]["response"]
            assert response["status"] == "incomplete"
            assert response["status_details"]["reason"] == "max_output_tokens"
            await client.say({**message("Hi"), "id": "last"})
            assert await client.error(
                "conversation.item.create", item={"id": "last", **message("a")}
            )

    run(body, FakeOptions(next_token=script("abcdef")))


def endless(**options: Any) -> FakeOptions:
    return FakeOptions(next_token=lambda *_: ord("a"), **options)


def test_a_response_is_cancelled() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            await client.say(message("Hi"))
            await client.send("response.create")
            await client.until("response.output_text.delta")
            await client.send("response.create")
            while (event := await client.next())["type"] != "error":
                assert event["type"].endswith("delta")
            assert "in progress" in event["error"]["message"]
            await client.send("response.cancel")
            response = (await client.until("response.done"))[-1]["response"]
            assert response["status"] == "cancelled"
            assert not service.server.async_engine.num_live
            await client.say(message("still here"))

    run(body, endless(step_s=0.005), max_model_len=100_000)


def test_a_client_that_goes_away_aborts_its_response() -> None:
    async def body(service: Service) -> None:
        for closes in (True, False):
            async with service.client() as client:
                await client.say(message("Hi"))
                await client.send("response.create")
                await client.until("response.output_text.delta")
                if not closes:
                    client.connection.transport.abort()
            while service.server.async_engine.num_live or service.server.state.lifecycle.active:
                await asyncio.sleep(0.01)

    run(body, endless(step_s=0.005), max_model_len=100_000)


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async def body(service: Service) -> None:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        port = int(service.url.split(":")[2].split("/")[0])
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        async with connect(
            service.url, sock=client, proxy=None, max_queue=1, compression=None
        ) as connection:
            slow = Client(connection)
            await slow.next("session.created")
            await slow.say(message("Hi"))
            await slow.send("response.create")
            connection.transport.pause_reading()
            while service.server.state.lifecycle.active:
                await asyncio.sleep(0.02)
            connection.transport.abort()

    run(body, endless(step_s=0, steps_per_wakeup=64), max_model_len=10_000_000)


def test_keys_scopes_and_limits() -> None:
    keys = [
        ApiKey.of("in", Caller("in", limits=KeyLimits(requests_per_minute=1))),
        ApiKey.of("out", Caller("out", scopes=frozenset({Scope.METRICS}))),
    ]

    async def body(service: Service) -> None:
        for headers, query, status in (
            ({}, "", 401),
            ({"authorization": "Bearer no"}, "", 401),
            ({"authorization": "Bearer out"}, "", 403),
            ({"authorization": "Bearer in"}, "?model=absent", 404),
            ({"authorization": "Bearer in", "origin": "http://other.example"}, "", 403),
        ):
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with service.client(query, **headers):
                    pass
            assert refused.value.response.status_code == status
        async with service.client(authorization="Bearer in") as client:
            await client.say(message("Hi"))
            for status in ("completed", "failed"):
                await client.send("response.create")
                response = (await client.until("response.done"))[-1]["response"]
                assert response["status"] == status
            assert response["status_details"]["error"]["code"] == "RateLimitError"

    run(body, FakeOptions(next_token=script("x")), keys=keys)


def test_a_key_that_is_gone_ends_its_sessions() -> None:
    """Also while a response is written, and before anything that its client sends."""
    named = [ApiKey.of(name, Caller(name, name)) for name in ("kept", "idle", "busy", "late")]
    ring = KeyRing(named)

    async def body(service: Service) -> None:
        async with (
            service.client(authorization="Bearer kept") as kept,
            service.client(authorization="Bearer idle") as idle,
            service.client(authorization="Bearer busy") as busy,
            service.client(authorization="Bearer late") as late,
        ):
            await busy.say(message("Hi"))
            await busy.send("response.create")
            await busy.until("response.output_text.delta")
            ring.replace(named[:1])
            await late.send("conversation.item.create", item=message("Hi"))
            for client in (idle, busy, late):
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    while True:
                        event = await client.next()
                        assert client is busy or event["type"] != "conversation.item.added"
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
                assert "key is not valid" in closed.value.rcvd.reason
            await kept.say(message("Hi"))

    run(body, FakeOptions(next_token=script("x" * 2000)), ring=ring)


def test_conversations_of_all_sessions_share_a_room() -> None:
    named = [ApiKey.of(name, Caller(name, name)) for name in ("one", "two", "three")]

    async def body(service: Service) -> None:
        room = service.server.state.conversation_room
        room.max_bytes = 4000
        async with (
            service.client(authorization="Bearer one") as one,
            service.client(authorization="Bearer one") as other,
            service.client(authorization="Bearer two") as two,
            service.client(authorization="Bearer three") as three,
        ):
            item = message("x" * 1200)
            added = await one.say(item)
            error = await other.error("conversation.item.create", item=item)
            assert "Your sessions have more than 2000 bytes" in error["message"]
            await two.say(item)
            await three.say(message("x" * 600))
            error = await three.error("conversation.item.create", item=message("x" * 700))
            assert "Sessions have more than 4000 bytes" in error["message"]
            await one.send("conversation.item.delete", item_id=added["item"]["id"])
            await one.next("conversation.item.deleted")
            await three.say(message("x" * 700))
            assert set(room.by_owner) == {"two", "three"}
        while room.num_bytes:  # until all connections are seen to be gone
            await asyncio.sleep(0)

    run(body, keys=named)


def test_what_is_not_a_handshake() -> None:
    async def body(service: Service) -> None:
        got = await service.server.client.get("/v1/realtime")
        assert got.status_code == 426 and "WebSocket" in got.text
        port = int(service.url.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        writer.write(b"GET /v1/realtime HTTP/1.1\r\n%b\r\n" % head)
        assert b"400" in await reader.readline()
        writer.close()

    run(body)


def test_messages_are_bounded() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            parts = iter(["", '{"type": "session', "", '.update"}', ""])
            await client.connection.send(parts)
            await client.next("session.updated")
        async with service.client() as client:
            await client.connection.send("x" * (2**20 + 1))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.next()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009

    run(body)


def test_an_idle_session_is_closed() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.next()
            assert closed.value.rcvd is not None and closed.value.rcvd.reason == "idle"

    run(body, idle_timeout=1.0)


def test_a_drain_waits_for_the_response() -> None:
    async def body(service: Service) -> None:
        lifecycle = service.server.state.lifecycle
        async with service.client() as client:
            await client.say(message("Hi"))
            await client.send("response.create")
            await client.until("response.output_text.delta")
            lifecycle.begin_drain()
            await client.send("response.create")
            events = await client.until("response.done")
            assert events[-1]["response"]["status"] == "completed"
            (error,) = [each["error"] for each in events if each["type"] == "error"]
            assert error["type"] == "server_error" and "shutting down" in error["message"]
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.next()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
            assert await lifecycle.wait_idle(60)

    run(body, FakeOptions(next_token=script("abcdefghij" * 10), step_s=0.005))
