"""Transcriptions over a fake engine that writes turns of speakers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.speech.retries import compression_ratio, repetition
from pagemill.server.testing.fake_server import EOS, FakeServer, fake_server
from pagemill.server.testing.fake_speech import fake_speech

PATH = "/v1/audio/transcriptions"
RATE = 16_000
SECONDS = 3
SOUND = bytes([64]) * (SECONDS * RATE)
WRITTEN = "[0.28][S01]Hello there.[0.94][0:01.1][S02] Hi![9]"
TEXT = "Hello there. Hi!"

Post = Callable[..., Awaitable[httpx.Response]]


def serve(check: Callable[[Post], Awaitable[None]], written: str = WRITTEN, **options: Any) -> None:
    """Lets a server write this of each clip; `options` are those of `fake_speech`."""
    tokens = [*written.encode(), EOS]
    model = FakeOptions(next_token=lambda previous, position, seed: tokens[position])
    options = {"max_clip_s": None, "speakers": True} | options

    async def main() -> None:
        async with fake_server(model, speech=fake_speech(**options)) as fake:
            await check(lambda **fields: post(fake, **fields))

    asyncio.run(main())


async def post(fake: FakeServer, **fields: Any) -> httpx.Response:
    data = {"language": "en", **fields}
    return await fake.client.post(PATH, files={"file": ("a.wav", SOUND)}, data=data)


def test_segments_have_speakers() -> None:
    async def check(post: Post) -> None:
        answer = await post(response_format="diarized_json")
        assert answer.status_code == 200, answer.text
        shared = {"type": "transcript.text.segment"}
        assert answer.json() == {
            "task": "transcribe",
            "duration": 3.0,
            "text": TEXT,
            "segments": [
                {"id": "seg_0", "start": 0.28, "end": 0.94, "text": "Hello there."}
                | {"speaker": "S01"}
                | shared,
                {"id": "seg_1", "start": 1.1, "end": 3.0, "text": "Hi!", "speaker": "S02"} | shared,
            ],
            "usage": {"type": "duration", "seconds": SECONDS},
        }

    serve(check)


def test_times_count_from_the_beginning_of_the_file() -> None:
    async def check(post: Post) -> None:
        segments = (await post(response_format="diarized_json")).json()["segments"]
        first, second = segments[0], segments[2]
        assert [each["id"] for each in segments] == [f"seg_{at}" for at in range(4)]
        length = first["end"] - first["start"]
        assert second["start"] > 1.2 and second["end"] - second["start"] == pytest.approx(length)

    serve(check, max_clip_s=2)


def test_other_formats_have_no_marks() -> None:
    async def check(post: Post) -> None:
        assert (await post()).json()["text"] == TEXT
        assert (await post(response_format="text")).text == TEXT
        srt = await post(response_format="srt")
        first = "00:00:00,280 --> 00:00:00,940\nS01: Hello there.\n\n"
        assert srt.text == f"1\n{first}2\n00:00:01,100 --> 00:00:03,000\nS02: Hi!\n\n"
        vtt = await post(response_format="vtt")
        assert vtt.text.startswith("WEBVTT\n\n00:00:00.280 --> 00:00:00.940\nS01: Hello there.\n")

    serve(check)


def test_streams_have_no_marks() -> None:
    async def check(post: Post) -> None:
        streamed = (await post(stream="true")).text
        data = [line[6:] for line in streamed.splitlines() if line.startswith("data: ")]
        parts = [
            choice["delta"]["content"]
            for each in data[:-1]
            for choice in json.loads(each)["choices"]
        ]
        assert "".join(parts) == TEXT and len(parts) > 1

    serve(check)


def test_an_output_without_turns() -> None:
    async def check(post: Post) -> None:
        answer = (await post(response_format="diarized_json")).json()
        assert (answer["text"], answer["segments"]) == ("this is all", [])

    serve(check, "this [1] is all")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "verbose_json"}, "response_format"),
        ({"response_format": "diarized_json", "stream": "true"}, "response_format"),
        ({"known_speaker_names[]": "Ada"}, "known_speaker_names"),
    ],
)
def test_refusals(fields: dict[str, str], param: str) -> None:
    async def check(post: Post) -> None:
        answer = await post(**fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param

    serve(check)


def test_models_that_tell_no_speakers_apart() -> None:
    async def check(post: Post) -> None:
        answer = await post(response_format="diarized_json")
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] == "response_format"
        assert "MOSS-Transcribe-Diarize" in error["message"]

    serve(check, "a", speakers=False)


def test_long_texts_are_not_taken_for_repeated_ones() -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(500)]
    text = " ".join(rng.choices(words, k=20_000))
    assert compression_ratio(text) > 2.4 > repetition(text)
    assert repetition(text + " and so on" * 400) > 2.4
    assert repetition("") == 1
