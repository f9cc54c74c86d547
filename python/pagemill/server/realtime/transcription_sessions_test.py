"""Sessions of `/v1/realtime` that write down what is said."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import openai
import pytest
import websockets
from websockets.asyncio.client import connect

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.testing.fake_server import EOS
from pagemill.server.testing.fake_speech import FakeMedia, fake_speech
from pagemill.server.testing.realtime_service import Client, Service, message, run

RATE = 24_000
PREFIX = "conversation.item.input_audio_transcription"
INTENT = "?intent=transcription"
BY_CLIENT = {"turn_detection": None, "transcription": {"language": "en"}}


def loud(seconds: float) -> str:
    samples = (np.sin(np.arange(int(seconds * RATE)) / 20) * 8000).astype(np.int16)
    return base64.b64encode(samples.tobytes()).decode()


def quiet(seconds: float) -> str:
    return base64.b64encode(bytes(2 * int(seconds * RATE))).decode()


def writes(*outputs: str, **options: Any) -> FakeOptions:
    """A model that hears German, and writes the next of `outputs` for each clip; the last one
    again and again."""
    written = [[*output.encode(), EOS] for output in outputs]
    turn = -1

    def next_token(previous: int, position: int, seed: int) -> int:
        nonlocal turn
        if previous == ord("?"):
            return ord("d")
        turn += position == 0
        tokens = written[min(turn, len(written) - 1)]
        return tokens[min(position, len(tokens) - 1)]

    return FakeOptions(next_token=next_token, **options)


def serve(body: Callable[[Service], Awaitable[None]], options: FakeOptions, **more: Any) -> None:
    """Runs `body` with a server of a model that transcribes; at the end no sound is kept."""

    async def checked(service: Service) -> None:
        await body(service)
        while service.server.state.lifecycle.active:
            await asyncio.sleep(0.01)
        room = service.server.state.sound_room
        assert room.num_bytes == 0

    run(checked, options, speech=fake_speech(max_clip_s=None), **more)


async def update(client: Client, **audio_input: Any) -> Any:
    session = {"type": "transcription", "audio": {"input": audio_input}}
    await client.send("session.update", session=session)
    return (await client.next("session.updated"))["session"]


async def append(client: Client, *audio: str) -> None:
    for each in audio:
        await client.send("input_audio_buffer.append", audio=each)


async def commit(client: Client, before: str | None = None) -> str:
    """Commits the buffer; returns the item's id."""
    await client.send("input_audio_buffer.commit")
    committed = await client.next("input_audio_buffer.committed")
    assert committed["previous_item_id"] == before
    for end in ("added", "done"):
        item = (await client.next(f"conversation.item.{end}"))["item"]
        assert item["id"] == committed["item_id"] and item["role"] == "user"
        assert item["content"] == [{"type": "input_audio", "transcript": None}]
    return committed["item_id"]


def test_a_turn_that_the_client_commits() -> None:
    async def body(service: Service) -> None:
        async with connect(service.url, proxy=None) as connection:
            client = Client(connection)
            session = (await client.next("session.created"))["session"]
            assert session["type"] == "transcription" and session["model"] == "fake"
            heard = session["audio"]["input"]
            assert heard["format"] == {"type": "audio/pcm", "rate": RATE}
            assert heard["turn_detection"]["silence_duration_ms"] == 500
            session = await update(client, **BY_CLIENT)
            assert session["audio"]["input"]["turn_detection"] is None
            await append(client, loud(0.1), loud(0.15))
            service.server.engine.most_tokens = 3
            item_id = await commit(client)
            events = [await client.next(f"{PREFIX}.delta")]
            service.server.engine.most_tokens = None
            events += await client.until(f"{PREFIX}.completed")
            assert {event["item_id"] for event in events} == {item_id}
            *deltas, done = events
            assert "".join(event["delta"] for event in deltas) == "It is."
            assert len(deltas) > 1
            assert done["transcript"] == "It is." and done["content_index"] == 0
            assert done["usage"] == {"type": "duration", "seconds": 0.25}
            await append(client, loud(0.2))
            await commit(client, before=item_id)
            assert (await client.until(f"{PREFIX}.completed"))[-1]["transcript"] == "So."

    serve(body, writes(" It is.", "So."))


def test_turns_are_found() -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            await append(client, quiet(1.0), loud(0.5), quiet(0.3), quiet(0.3), quiet(1.0))
            started = await client.next("input_audio_buffer.speech_started")
            assert started["audio_start_ms"] == 700
            stopped = await client.next("input_audio_buffer.speech_stopped")
            assert stopped["audio_end_ms"] == 2000
            committed = await client.next("input_audio_buffer.committed")
            assert committed["item_id"] == stopped["item_id"] == started["item_id"]
            done = (await client.until(f"{PREFIX}.completed"))[-1]
            assert done["item_id"] == committed["item_id"]
            assert done["usage"]["seconds"] == 1.3
            assert done["transcript"] == "Ja"
            # Speech that does not end is a turn when it is as long as a file may be.
            await append(client, *[loud(0.5)] * 9)
            await client.until("input_audio_buffer.speech_stopped")
            done = (await client.until(f"{PREFIX}.completed"))[-1]
            assert done["usage"]["seconds"] == 4

    serve(body, writes(" Ja"))


def test_a_buffer_is_cleared() -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            await append(client, loud(0.5))
            await client.next("input_audio_buffer.speech_started")
            await client.send("input_audio_buffer.clear")
            await client.next("input_audio_buffer.cleared")
            error = await client.error("input_audio_buffer.commit")
            assert error["code"] == "input_audio_buffer_commit_empty"
            await append(client, quiet(0.3))

    serve(body, writes("x"))


def test_refusals_leave_the_session_as_it_is() -> None:
    def heard(**fields: Any) -> dict[str, Any]:
        return {"session": {"audio": {"input": fields}}}

    cases: list[tuple[str, dict[str, Any], str]] = [
        ("input_audio_buffer.append", {}, "audio"),
        ("input_audio_buffer.append", {"audio": "?"}, "audio"),
        ("input_audio_buffer.append", {"audio": "AAAA"}, "audio"),
        ("input_audio_buffer.append", {"audio": loud(4.1)}, "audio"),
        ("input_audio_buffer.commit", {}, "type"),
        ("input_audio_buffer.other", {}, "type"),
        ("output_audio_buffer.clear", {}, "type"),
        ("conversation.item.create", {"item": message("a")}, "type"),
        ("response.create", {}, "type"),
        ("session.update", {"session": {"type": "realtime"}}, "type"),
        ("session.update", {"session": {"type": "translation"}}, "type"),
        ("session.update", {"session": {"include": ["logprobs"]}}, "include"),
        ("session.update", {"session": {"audio": 5}}, "audio"),
        ("session.update", {"session": {"audio": {"input": [5]}}}, "audio"),
        ("session.update", {"session": {"audio": {"output": {"voice": "x"}}}}, "audio"),
        ("session.update", heard(noise_reduction={"type": "near_field"}), "audio"),
        ("session.update", heard(turn_detection={"type": "semantic_vad"}), "audio"),
        ("session.update", heard(turn_detection={"threshold": 2}), "audio"),
        ("session.update", heard(turn_detection={"silence_duration_ms": 0}), "audio"),
        ("session.update", heard(turn_detection={"idle_timeout_ms": 6000}), "audio"),
        ("session.update", heard(format={"type": "audio/mp3"}), "audio"),
        ("session.update", heard(format={"type": "audio/pcmu", "rate": 16000}), "audio"),
        ("session.update", heard(format={"rate": 10**9}), "audio"),
        ("session.update", heard(transcription={"model": "other"}), "model"),
        ("session.update", heard(transcription={"language": "xx"}), "language"),
        ("session.update", heard(transcription={"prompt": "x" * 5000}), "audio"),
    ]

    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            before = await update(client, **BY_CLIENT)
            for kind, fields, param in cases:
                error = await client.error(kind, **fields)
                assert error["param"] == param, (kind, fields, error)
            assert await update(client) == before
            await append(client, loud(0.2))
            await commit(client)
            await client.until(f"{PREFIX}.completed")

    serve(body, writes("x"))


def test_formats() -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            session = await update(client, **BY_CLIENT, format={"type": "audio/pcma"})
            assert session["audio"]["input"]["format"]["rate"] == 8_000
            await append(client, base64.b64encode(bytes(4000)).decode())
            error = await client.error(
                "session.update", session={"audio": {"input": {"format": None}}}
            )
            assert error["param"] == "audio"
            await commit(client)
            done = (await client.until(f"{PREFIX}.completed"))[-1]
            assert done["usage"]["seconds"] == 0.5

    serve(body, writes("x"))


def test_transcriptions_come_in_order_and_wait_for_each_other() -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            await update(client, **BY_CLIENT)
            for _ in range(9):
                await append(client, loud(0.2))
                await client.send("input_audio_buffer.commit")
            committed: list[str] = []
            written: list[tuple[str, str]] = []
            most_waiting = 0
            while len(written) < 9:
                event = await client.next()
                if event["type"] == "input_audio_buffer.committed":
                    committed.append(event["item_id"])
                elif event["type"] == f"{PREFIX}.completed":
                    written.append((event["item_id"], event["transcript"]))
                most_waiting = max(most_waiting, len(committed) - len(written))
            assert [item for item, _ in written] == committed
            assert [text for _, text in written] == [*"abcdefghi"]
            assert most_waiting <= 5  # one more is committed when the fifth is done

    serve(body, writes(*"abcdefghi", step_s=0.005))


def test_failures_are_of_their_turn() -> None:
    keys = [ApiKey.of("k", Caller("k", limits=KeyLimits(requests_per_minute=1)))]

    async def body(service: Service) -> None:
        async with service.client(INTENT, authorization="Bearer k") as client:
            await update(client, **BY_CLIENT)
            await append(client, loud(0.2))
            await commit(client)
            await client.until(f"{PREFIX}.completed")
            await append(client, loud(0.2))
            await client.send("input_audio_buffer.commit")
            failed = (await client.until(f"{PREFIX}.failed"))[-1]
            assert failed["error"]["code"] == "RateLimitError" and failed["content_index"] == 0
            await client.send("input_audio_buffer.clear")
            await client.next("input_audio_buffer.cleared")

    serve(body, writes("x"), keys=keys)


def test_the_time_of_a_request_counts_from_the_turn() -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            await update(client, **BY_CLIENT)
            began = time.monotonic()
            await append(client, loud(0.2))
            await commit(client)
            await client.until(f"{PREFIX}.completed")
            submitted = service.server.engine.submitted
            assert submitted
            for state in submitted:
                deadline_us = state.request.deadline_us
                assert deadline_us is not None and deadline_us / 1e6 > began + 60

    serve(body, writes("x"), request_timeout=60.0)


@pytest.mark.parametrize("closes", [True, False])
def test_a_client_that_goes_away_ends_its_transcriptions(closes: bool) -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            await update(client, **BY_CLIENT)
            for _ in range(3):
                await append(client, loud(0.2))
                await client.send("input_audio_buffer.commit")
            await append(client, loud(0.2))
            await client.until(f"{PREFIX}.delta")
            if not closes:
                client.connection.transport.abort()

    endless = FakeOptions(next_token=lambda *_: ord("a"), step_s=0.005)
    serve(body, endless, max_model_len=100_000)


def test_a_drain_ends_what_a_microphone_sends() -> None:
    async def body(service: Service) -> None:
        async with service.client(INTENT) as client:
            await append(client, loud(0.5), quiet(0.6))
            await client.until(f"{PREFIX}.delta")
            service.server.state.lifecycle.begin_drain()
            with pytest.raises(websockets.ConnectionClosed) as closed:
                while True:
                    await append(client, quiet(0.1))
                    await asyncio.sleep(0.02)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
            await client.until(f"{PREFIX}.completed")  # which came before

    serve(body, writes("Ja, ja, ja.", step_s=0.01))


def test_the_reference_systems_events() -> None:
    async def body(service: Service) -> None:
        async with service.client("") as client:
            error = await client.error("session.update", model="other")
            assert error["code"] == "NotFoundError"
            await client.send("session.update", model="fake")
            session = (await client.next("session.updated"))["session"]
            assert session["audio"]["input"]["format"]["rate"] == 16_000
            await client.send("input_audio_buffer.commit", final=False)
            await append(client, loud(0.1), loud(0.1))
            await client.send("input_audio_buffer.commit", final=True)
            *events, done = await client.until("transcription.done")
            deltas = [each["delta"] for each in events if each["type"] == "transcription.delta"]
            assert "".join(deltas) == done["text"] == "Ja."
            assert done["usage"]["completion_tokens"] == 4
            assert not any(each["type"].startswith(PREFIX) for each in events)

    serve(body, writes("Ja."))


def test_openais_client() -> None:
    async def body(service: Service) -> None:
        base = service.url.removesuffix("/realtime").replace("ws", "http")
        client = openai.AsyncOpenAI(api_key="x", base_url=base)
        async with client.realtime.connect(
            extra_query={"intent": "transcription"},
            websocket_connection_options={"proxy": None},
        ) as connection:
            await connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {"input": {"transcription": {"model": "fake", "language": "en"}}},
                }
            )
            for audio in (loud(0.4), quiet(0.6)):
                await connection.input_audio_buffer.append(audio=audio)
            kinds: list[str] = []
            async for event in connection:
                kinds.append(event.type)
                if event.type == "conversation.item.input_audio_transcription.completed":
                    assert event.transcript == "Yes." and event.usage.type == "duration"
                    break
            assert [kind for kind in kinds if kind.startswith("input_audio_buffer")] == [
                f"input_audio_buffer.{event}"
                for event in ("speech_started", "speech_stopped", "committed")
            ]

    serve(body, writes("Yes."))


def test_browsers_send_their_key_as_a_protocol(caplog: pytest.LogCaptureFixture) -> None:
    keys = [ApiKey.of("sk-1", Caller("page"))]
    caplog.set_level(logging.DEBUG)
    logging.getLogger("websockets.client").setLevel(logging.INFO)  # this test's own side

    async def body(service: Service) -> None:
        url = service.url + INTENT
        offered: Any = ["realtime", "openai-insecure-api-key.sk-1", "openai-beta.realtime-v1"]
        async with connect(url, subprotocols=offered, proxy=None) as connection:
            await Client(connection).next("session.created")
            assert connection.subprotocol == "realtime"
        async with connect(url, subprotocols=offered[1:], proxy=None) as connection:
            assert connection.subprotocol is None
        for wrong in (["realtime"], ["realtime", "openai-insecure-api-key.sk-2"]):
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with connect(url, subprotocols=wrong, proxy=None):  # pyright: ignore[reportArgumentType]
                    pass
            assert refused.value.response.status_code == 401

    serve(body, writes("x"), keys=keys)
    assert not [each for each in caplog.messages if "insecure-api-key" in each]


def test_a_model_that_does_not_transcribe() -> None:
    async def body(service: Service) -> None:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with service.client(INTENT):
                pass
        assert refused.value.response.status_code == 400
        async with service.client() as client:
            error = await client.error("session.update", session={"type": "transcription"})
            assert "does not transcribe" in error["message"]

    run(body, writes("x"), media=FakeMedia())
