"""Conversations over `/v1/realtime` with a model that hears."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import soundfile

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.realtime import conversation
from pagemill.server.testing.fake_server import script
from pagemill.server.testing.fake_speech import FakeMedia, fake_speech
from pagemill.server.testing.realtime_service import Client, Service, message, run

RATE = 8_000
FORMAT = {"type": "audio/pcm", "rate": RATE}
BY_CLIENT = {"format": FORMAT, "turn_detection": None}
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


def loud(seconds: float) -> np.ndarray:
    return (np.sin(np.arange(int(seconds * RATE)) / 20) * 8000).astype(np.int16)


def encoded(samples: np.ndarray) -> str:
    return base64.b64encode(samples.tobytes()).decode()


QUIET = encoded(np.zeros(RATE * 6 // 10, np.int16))


def endless() -> FakeOptions:
    return FakeOptions(next_token=lambda *_: ord("a"), step_s=0.005)


def sound(audio: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}


async def update(client: Client, **audio_input: Any) -> Any:
    await client.send("session.update", session={"audio": {"input": audio_input}})
    return (await client.next("session.updated"))["session"]


async def append(client: Client, *audio: str) -> None:
    for each in audio:
        await client.send("input_audio_buffer.append", audio=each)


def heard(url: str) -> np.ndarray:
    """The samples of a URL that the model's media got."""
    data = base64.b64decode(url.partition(",")[2])
    samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    assert rate == RATE
    return samples


def test_what_a_client_commits_is_heard() -> None:
    media = FakeMedia()

    async def body(service: Service) -> None:
        async with service.client() as client:
            session = await update(client, **BY_CLIENT)
            assert session["type"] == "realtime" and session["output_modalities"] == ["text"]
            assert session["audio"]["input"]["transcription"] is None
            first = await client.say(message("Listen."))
            await append(client, encoded(loud(0.2)), encoded(loud(0.1)))
            await client.send("input_audio_buffer.commit")
            committed = await client.next("input_audio_buffer.committed")
            assert committed["previous_item_id"] == first["item"]["id"]
            added = await client.next("conversation.item.added")
            assert added["item"]["id"] == committed["item_id"]
            assert added["item"]["content"] == [{"type": "input_audio", "transcript": None}]
            await client.next("conversation.item.done")
            await client.send("response.create")
            response = (await client.until("response.done"))[-1]["response"]
            assert response["output"][0]["content"][0]["text"] == "I hear."
            (url,) = media.read_urls
            sent = np.concatenate([loud(0.2), loud(0.1)])
            assert np.array_equal(heard(url), sent)
            rendered = service.server.renderer.rendered[-1].messages
            assert rendered[-1]["content"] == [{"type": "audio"}]
            await client.send("conversation.item.retrieve", item_id=committed["item_id"])
            (part,) = (await client.next("conversation.item.retrieved"))["item"]["content"]
            assert part["audio"] == encoded(sent)

    run(body, FakeOptions(next_token=script("I hear.")), media=media)


def test_items_have_audio() -> None:
    media = FakeMedia()

    async def body(service: Service) -> None:
        async with service.client() as client:
            await update(client, format=FORMAT)
            item = sound(encoded(loud(0.1)))
            item["content"][0]["transcript"] = "So."
            added = await client.say(item)
            assert added["item"]["content"] == [{"type": "input_audio", "transcript": "So."}]
            await client.send("response.create", response={"input": [sound(encoded(loud(0.2)))]})
            await client.until("response.done")
            assert [len(heard(url)) for url in media.read_urls] == [RATE // 5]
            for part in ({}, {"audio": 5}, {"audio": "?"}, {"audio": "AA==", "transcript": 5}):
                bad = {**item, "content": [{"type": "input_audio", **part}]}
                error = await client.error("conversation.item.create", item=bad)
                assert error["param"] in ("audio", "item")

    run(body, FakeOptions(next_token=script("x")), media=media)


def test_a_turn_is_answered_and_interrupts() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            await update(client, format=FORMAT)
            await append(client, encoded(loud(0.5)), QUIET)
            await client.until("response.output_text.delta")
            await append(client, encoded(loud(0.5)))
            events = await client.until("response.done")
            kinds = [event["type"] for event in events]
            assert "input_audio_buffer.speech_started" in kinds
            response = events[-1]["response"]
            assert response["status"] == "cancelled"
            assert response["status_details"]["reason"] == "turn_detected"
            await append(client, QUIET)
            await client.until("response.output_text.delta")
            await client.send("response.cancel")
            response = (await client.until("response.done"))[-1]["response"]
            assert response["status_details"]["reason"] == "client_cancelled"
            # Neither of both if the client does not want it.
            await update(client, turn_detection={"create_response": False})
            await append(client, encoded(loud(0.5)), QUIET)
            await client.until("conversation.item.done")
            assert not service.server.async_engine.num_live
            await update(client, turn_detection={"interrupt_response": False})
            await client.send("response.create")
            await client.until("response.output_text.delta")
            await append(client, encoded(loud(0.5)), QUIET)
            kinds = [event["type"] for event in await client.until("conversation.item.done")]
            assert "response.done" not in kinds and "error" not in kinds

    run(body, endless(), media=FakeMedia(), max_model_len=100_000)


def test_turns_are_transcribed_if_the_model_does() -> None:
    transcription = {"language": "en", "prompt": "p"}

    async def body(service: Service) -> None:
        async with service.client() as client:
            await update(client, **BY_CLIENT, transcription=transcription)
            await append(client, encoded(loud(0.3)))
            await client.send("input_audio_buffer.commit")
            done = (await client.until(TRANSCRIBED))[-1]
            assert done["transcript"] == "Yes."
            await client.send("conversation.item.retrieve", item_id=done["item_id"])
            (part,) = (await client.next("conversation.item.retrieved"))["item"]["content"]
            assert part["transcript"] == "Yes."
            prompt = service.server.engine.submitted[-1].request.prompt_token_ids
            assert bytes(prompt.tolist())[-4:] == b"pet="
            error = await client.error("session.update", session={"type": "transcription"})
            assert "has items" in error["message"]

    options = FakeOptions(next_token=script("Yes."))
    run(body, options, speech=fake_speech(max_clip_s=None), media=FakeMedia())

    async def deaf(service: Service) -> None:
        async with service.client() as client:
            session = {"audio": {"input": {"transcription": transcription}}}
            error = await client.error("session.update", session=session)
            assert "does not transcribe" in error["message"]

    run(deaf, options, media=FakeMedia())


def test_a_turn_without_room_is_dropped(monkeypatch: Any) -> None:
    monkeypatch.setattr(conversation, "MAX_ITEMS", 1)

    async def body(service: Service) -> None:
        async with service.client() as client:
            await update(client, format=FORMAT)
            await client.say(message("a"))
            await append(client, encoded(loud(0.5)), QUIET)
            error = (await client.until("error"))[-1]["error"]
            assert "delete some" in error["message"]
            room = service.server.state.sound_room
            await client.send("input_audio_buffer.clear")
            await client.next("input_audio_buffer.cleared")
            assert room.num_bytes == 0

    run(body, FakeOptions(next_token=script("x")), media=FakeMedia())


def test_a_model_of_text_takes_no_audio() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            await client.send("session.update", session={})
            assert "audio" not in (await client.next("session.updated"))["session"]
            cases = (
                ("input_audio_buffer.append", {"audio": "AAAA"}, "type"),
                ("session.update", {"session": {"audio": {"input": BY_CLIENT}}}, "audio"),
                ("conversation.item.create", {"item": sound("AAAA")}, "item"),
                ("response.create", {"response": {"input": [sound("AAAA")]}}, "item"),
            )
            for kind, fields, param in cases:
                error = await client.error(kind, **fields)
                assert "takes no audio" in error["message"] and error["param"] == param

    run(body, FakeOptions(next_token=script("x")))


def test_a_turn_may_be_replaced_before_it_is_written_down() -> None:
    async def body(service: Service) -> None:
        async with service.client() as client:
            await update(client, **BY_CLIENT, transcription={"language": "en"})
            service.server.engine.paused = True
            await append(client, encoded(loud(0.3)))
            await client.send("input_audio_buffer.commit")
            name = (await client.next("input_audio_buffer.committed"))["item_id"]
            await client.send("conversation.item.delete", item_id=name)
            await client.until("conversation.item.deleted")
            text = {**message("Something else."), "id": name}
            await client.send("conversation.item.create", item=text)
            await client.until("conversation.item.done")
            service.server.engine.paused = False
            assert (await client.until(TRANSCRIBED))[-1]["transcript"] == "Yes, yes, yes."
            await client.send("conversation.item.retrieve", item_id=name)
            found = (await client.next("conversation.item.retrieved"))["item"]
            assert found["content"] == text["content"]

    options = FakeOptions(next_token=script("Yes, yes, yes."))
    run(body, options, speech=fake_speech(max_clip_s=None), media=FakeMedia())
