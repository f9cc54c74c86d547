"""Transcriptions and translations over a fake engine: forms, clips, formats and streams."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.engine.testing.fake_types import FakeRequest, FakeStatusError
from pagemill.render.transcription.alignment import Heard, token_times
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.speech import speech as speech_module
from pagemill.server.speech import words
from pagemill.server.speech.speech import TIMED_AT_ONCE
from pagemill.server.testing.fake_server import EOS, FakeServer, fake_server
from pagemill.server.testing.fake_speech import (
    AUDIO,
    AUDIO_TOKENS,
    MAX_FILE_BYTES,
    fake_speech,
)

PATH = "/v1/audio/transcriptions"
RATE = 16_000
SECOND = bytes([64]) * RATE
SHORT = SECOND + SECOND[: RATE // 2]
# Two clips: it is quiet from 1.5 s to 1.6 s.
LONG = SHORT + bytes(RATE // 10) + SECOND + SECOND[: 4 * RATE // 10]


def clips_of(*outputs: str, language: str = "d") -> FakeOptions:
    """A model that finds `language`, and writes the next of `outputs` for each clip, which differ
    in each character: it goes on with the one that has the character before."""
    written = [[*output.encode(), EOS] for output in outputs]
    num_begun = 0

    def next_token(previous: int, position: int, seed: int) -> int:
        nonlocal num_begun
        if previous == ord("?"):
            return ord(language)
        if position == 0:
            num_begun += 1
            return written[(num_begun - 1) % len(written)][0]
        return next(t[position] for t in written if t[position - 1 : position] == [previous])

    return FakeOptions(next_token=next_token)


def aligned(options: FakeOptions) -> FakeOptions:
    """The model also tells when words are said, by two heads."""
    return replace(options, alignment=(2, 4))


class Served:
    """A server whose model transcribes."""

    def __init__(self, fake: FakeServer) -> None:
        self.fake = fake

    async def post(
        self, audio: bytes = SHORT, path: str = PATH, file: bool = True, **fields: Any
    ) -> httpx.Response:
        """A form with a file, unless not `file`; `a_LIST` is the field `a[]`."""
        data = {name.replace("_LIST", "[]"): value for name, value in fields.items()}
        files = {"file": ("a.wav", audio)} if file else {"unread": b""}
        return await self.fake.client.post(path, files=files, data=data)


def serve(options: FakeOptions, check: Callable[[Served], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        async with fake_server(options, speech=fake_speech(), **more) as fake:
            await check(Served(fake))

    asyncio.run(main())


def events(text: str) -> list[Any]:
    """The data of a stream, which ends as streams do."""
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(each) for each in data[:-1]]


def test_a_transcription() -> None:
    async def check(served: Served) -> None:
        answer = await served.post(language="en", model="fake")
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "text": "hello",
            "usage": {"type": "duration", "seconds": 2},
        }
        plain = await served.post(language="en", response_format="text")
        assert plain.text == "hello" and plain.headers["content-type"].startswith("text/plain")
        samplings = [each.request.sampling for each in served.fake.engine.submitted]
        assert samplings and all(each.watermarking is False for each in samplings)

    serve(clips_of(" hello"), check)


def test_long_audio_is_cut_and_joined() -> None:
    async def check(served: Served) -> None:
        answer = await served.post(LONG, language="en")
        assert answer.json()["text"] == "one two"
        assert answer.json()["usage"]["seconds"] == 3
        assert served.fake.engine.stats().num_submitted == 2

    serve(clips_of("one", " two"), check)


def test_segments_count_from_the_beginning_of_the_file() -> None:
    async def check(served: Served) -> None:
        answer = (
            await served.post(
                LONG, response_format="verbose_json", timestamp_granularities_LIST="segment"
            )
        ).json()
        assert answer["task"] == "transcribe" and answer["language"] == "de"
        assert (answer["duration"], answer["text"]) == (3.0, "a b c")
        found = [(s["id"], s["start"], s["end"], s["text"], s["seek"]) for s in answer["segments"]]
        assert found == [
            (0, 0.0, 0.5, "a", 0),
            (1, 0.5, 1.0, " b", 0),
            (2, 1.55, 2.05, " c", 155),
        ]
        first = answer["segments"][0]
        assert first["tokens"] == [*b"a"] and first["avg_logprob"] == -0.5
        assert 0 < first["no_speech_prob"] < 1e-9 and first["compression_ratio"] < 1
        srt = await served.post(LONG, response_format="srt")
        assert srt.text.startswith("1\n00:00:00,000 --> 00:00:00,500\n")
        vtt = await served.post(LONG, response_format="vtt")
        assert vtt.headers["content-type"].startswith("text/vtt")
        assert vtt.text.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:00.500\n")

    serve(clips_of("a| b|", " c|"), check)


def test_words() -> None:
    """They are of each clip, behind what was written of it."""

    async def check(served: Served) -> None:
        fields = {"response_format": "verbose_json", "timestamp_granularities_LIST": "word"}
        whole = await served.post(LONG, language="en", **fields)
        assert whole.status_code == 200, whole.text
        answer = whole.json()
        assert answer["text"] == "a bc, d e" and "segments" not in answer
        assert [word["word"] for word in answer["words"]] == ["a", "bc,", "d", "e"]
        times = [(word["start"], word["end"]) for word in answer["words"]]
        assert times == sorted(times) and all(start <= end for start, end in times)
        assert times[2][1] <= 1.5 and times[3][0] >= 1.55
        *_, first, second = served.fake.engine.submitted
        for submitted, text in ((first, b"a bc,| d"), (second, b" e")):
            request = submitted.request
            assert request.sampling is None and request.new_token_matcher is None
            prompt = [*b"(", *[AUDIO] * AUDIO_TOKENS, *b"et=", *text, ord("|")]
            assert list(request.prompt_token_ids) == prompt and len(request.media) == 1
        fields["timestamp_granularities_LIST"] = ["word", "segment"]
        both = (await served.post(LONG, language="en", **fields)).json()
        assert both["words"] == answer["words"] and len(both["segments"]) == 3

    serve(aligned(clips_of("a bc,| d|", " e|")), check)


def test_no_words_are_looked_for_where_nothing_is_said() -> None:
    async def check(served: Served) -> None:
        fields = {"response_format": "verbose_json", "timestamp_granularities_LIST": "word"}
        assert (await served.post(language="en", **fields)).json()["words"] == []
        assert all(state.request.sampling for state in served.fake.engine.submitted)

    serve(aligned(clips_of("")), check)


def test_words_of_a_few_clips_are_timed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * TIMED_AT_ONCE
    all_written = threading.Event()
    lock, timed = threading.Lock(), [0, 0]  # at once: now, and at most

    def slow_times(heard: Heard, clip_s: float) -> np.ndarray:
        with lock:
            timed[0] += 1
            timed[1] = max(timed)
        assert all_written.wait(60)
        with lock:
            timed[0] -= 1
        return token_times(heard, clip_s)

    async def check(served: Served) -> None:
        fields = {"response_format": "verbose_json", "timestamp_granularities_LIST": "word"}
        posts = [asyncio.create_task(served.post(language="en", **fields)) for _ in range(count)]
        engine = served.fake.engine

        def num_submitted(*, to_write: bool) -> int:
            found = [each.request.sampling is not None for each in engine.submitted]
            return sum(each == to_write for each in found)

        while num_submitted(to_write=True) < count or timed[0] < TIMED_AT_ONCE:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # more would have begun
        assert num_submitted(to_write=False) == TIMED_AT_ONCE
        all_written.set()
        assert {(await post).status_code for post in posts} == {200}
        assert num_submitted(to_write=False) == count and timed == [0, TIMED_AT_ONCE]

    monkeypatch.setattr(words, "token_times", slow_times)
    serve(aligned(clips_of(" hello|")), check)


def test_text_follows_the_rules_of_the_family() -> None:
    async def check(served: Served) -> None:
        await served.post(LONG, language="en")
        await served.post(language="en", response_format="srt")
        await served.post()
        *clips, timed, probe, plain = [state.request for state in served.fake.engine.submitted]
        assert len(clips) == 2
        for request in (*clips, plain):
            assert request.new_token_matcher == (256, ord("."), (1,), (), -1, 0)
            assert "timestamp_begin" not in vars(request.sampling)
        assert timed.new_token_matcher == (256, ord("."), (1,), (), ord("|"), 0)
        assert timed.sampling.timestamp_begin == ord("|")
        assert probe.new_token_matcher.limits.allowed == (*b"de",), "any of the languages"

    serve(clips_of("a|"), check)


def test_text_that_repeats_itself_is_written_again() -> None:
    loop, other = "z" * 80, "y" * 79

    async def check(served: Served) -> None:
        answer = await served.post(LONG, language="en", response_format="verbose_json")
        found = [(s["text"], s["temperature"]) for s in answer.json()["segments"]]
        assert found == [("first", 0.0), ("good", 0.4)]
        sent = [state.request.sampling for state in served.fake.engine.submitted]
        assert [round(each.temperature, 1) for each in sent[-4:]] == [0, 0, 0.2, 0.4]
        assert {each.seed for each in sent[-2:]} == {0}
        stated = await served.post(LONG, language="en", temperature="0.5")
        assert loop in stated.json()["text"]

    serve(clips_of("first|", f"{loop}|", f"{other}|", "good|"), check)


def prompts(served: Served) -> list[str]:
    """The text of each prompt that was submitted, without its audio."""
    sent = [state.request for state in served.fake.engine.submitted]
    return ["".join(chr(i) for i in each.prompt_token_ids if i < 0x80) for each in sent]


def test_a_clip_may_read_what_was_said_before_it() -> None:
    async def check(served: Served) -> None:
        fields = {"language": "en", "prompt": "p", "condition_on_previous_text": "true"}
        answer = await served.post(LONG, **fields)
        assert answer.json()["text"] == "one| two|"
        assert prompts(served) == ["(pet=", "(p one|et="]
        timed = await served.post(LONG, **fields, response_format="verbose_json")
        assert [each["text"] for each in timed.json()["segments"]] == ["one", " two"]
        assert prompts(served)[-1] == "(p oneet=", "without its timestamps"
        refused = await served.post(LONG, **fields, stream="true")
        assert refused.json()["error"]["param"] == "condition_on_previous_text"

    serve(clips_of("one|", " two|"), check)


def test_text_of_high_temperatures_is_shown_to_no_clip() -> None:
    loop = "z" * 80

    async def check(served: Served) -> None:
        answer = await served.post(
            LONG, language="en", response_format="verbose_json", condition_on_previous_text="true"
        )
        found = [(s["text"], s["temperature"]) for s in answer.json()["segments"]]
        assert found == [("a", 0.6), ("b", 0.0)]
        assert set(prompts(served)[-5:]) == {"(et="}

    serve(clips_of(f"{loop}|", f"{loop}|", f"{loop}|", "a|", "b|"), check)


def test_an_aborted_transcript_is_no_part_of_it() -> None:
    async def check(served: Served) -> None:
        engine = served.fake.engine
        for fields in ({}, {"condition_on_previous_text": "true"}):
            engine.paused, before = True, engine.stats().num_submitted
            post = asyncio.create_task(served.post(LONG, language="en", **fields))
            while engine.stats().num_submitted == before:
                await asyncio.sleep(0.001)
            served.fake.async_engine.abort(None)
            engine.paused = False
            assert (await post).status_code == 503

    serve(clips_of("one|", " two|"), check)


def test_hotwords_come_before_the_prompt() -> None:
    async def check(served: Served) -> None:
        await served.post(language="en", hotwords="h w", prompt="p")
        await served.post(language="en", hotwords="h")
        assert prompts(served) == ["(h w pet=", "(het="]

    serve(clips_of("a"), check)


def test_text_that_repeats_itself_stays_if_another_try_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = "z" * 80

    async def check(served: Served) -> None:
        engine = served.fake.engine
        accept = engine.accept

        def accept_greedy(request_id: int, request: FakeRequest) -> None:
            if request.sampling is not None and request.sampling.temperature > 0:
                raise FakeStatusError("RESOURCE_EXHAUSTED", "Too many requests are waiting.")
            accept(request_id, request)

        monkeypatch.setattr(engine, "accept", accept_greedy)
        answer = await served.post(language="en")
        assert (answer.status_code, answer.json().get("text")) == (200, loop)

    serve(clips_of(loop), check)


def test_the_language_is_found_once() -> None:
    async def check(served: Served) -> None:
        assert (await served.post(LONG)).status_code == 200
        assert served.fake.engine.stats().num_submitted == 3, "one more than clips"
        assert (await served.post(LONG, language="EN")).status_code == 200
        assert served.fake.engine.stats().num_submitted == 5

    serve(clips_of("a"), check)


@pytest.mark.parametrize(
    ("path", "kind"), [(PATH, "transcription"), ("/v1/audio/translations", "translation")]
)
def test_a_stream_has_the_text_of_clips_in_their_order(path: str, kind: str) -> None:
    async def check(served: Served) -> None:
        answer = await served.post(
            LONG, path, language="de", stream="true", stream_include_usage="true"
        )
        assert answer.headers["content-type"].startswith("text/event-stream")
        *chunks, last = events(answer.text)
        assert {chunk["object"] for chunk in chunks} == {f"{kind}.chunk"}
        assert "".join(c["choices"][0]["delta"]["content"] for c in chunks) == "long first then"
        assert [c["choices"][0]["finish_reason"] for c in chunks][-2:] == [None, "stop"]
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 17

    serve(clips_of("long first", " then"), check)


def test_usage_is_in_streams_that_want_it() -> None:
    async def check(served: Served) -> None:
        plain = events((await served.post(language="en", stream="true")).text)
        assert not any("usage" in chunk for chunk in plain)
        fields = {"stream": "true", "stream_continuous_usage_stats": "true"}
        counted = events((await served.post(language="en", **fields)).text)
        assert all("usage" in chunk for chunk in counted)

    serve(clips_of(" abc"), check)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"file": False}, 400, "file"),
        ({"audio": b""}, 400, "file"),
        ({"language": "xx"}, 400, "language"),
        ({"response_format": "pdf"}, 400, "response_format"),
        ({"stream": "1", "response_format": "srt"}, 400, "response_format"),
        ({"timestamp_granularities_LIST": ["segment"]}, 400, "timestamp_granularities"),
        (
            {"timestamp_granularities_LIST": ["word"], "response_format": "verbose_json"},
            400,
            "timestamp_granularities",
        ),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"temperature": "101"}, 400, "temperature"),
        ({"max_completion_tokens": "0"}, 400, "max_completion_tokens"),
        ({"max_completion_tokens": "1000"}, 400, "max_completion_tokens"),
        ({"n": "2"}, 400, "n"),
        ({"use_beam_search": "true", "n": "129"}, 400, "n"),
        ({"use_beam_search": "true", "repetition_penalty": "1.1"}, 400, "repetition_penalty"),
        ({"use_beam_search": "true", "length_penalty": "11"}, 400, "length_penalty"),
        ({"vllm_xargs": "[1]"}, 400, "vllm_xargs"),
        ({"vllm_xargs": '{"no_such": 1}'}, 400, "vllm_xargs"),
        ({"model": "other"}, 404, "model"),
        ({"audio": bytes(MAX_FILE_BYTES + 1)}, 413, None),
    ],
)
def test_refusals(fields: dict[str, Any], status: int, param: str | None) -> None:
    async def check(served: Served) -> None:
        answer = await served.post(**({"language": "en"} | fields))
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["param"] == param
        assert served.fake.engine.stats().num_submitted == 0

    serve(clips_of("a"), check)


def test_the_best_beam_is_the_transcription() -> None:
    following = {"=": "a", "a": "b", "b": "c"}
    options = FakeOptions(
        next_token=lambda previous, *_: ord(following.get(chr(previous), chr(EOS)))
    )
    beams = {"language": "en", "use_beam_search": "true", "n": "3"}

    async def check(served: Served) -> None:
        answer = await served.post(LONG, **beams)
        assert answer.json()["text"] == "abcabc", answer.text
        sent = [each.request.sampling for each in served.fake.engine.submitted]
        assert len(sent) > 8 and all(each.max_tokens == 1 for each in sent)
        timed = (await served.post(LONG, response_format="verbose_json", **beams)).json()
        assert timed["text"] == ""  # it has no times
        chunks = events((await served.post(LONG, stream="true", **beams)).text)
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert "".join(each["delta"]["content"] for each in choices) == "abcabc"
        assert [each["finish_reason"] for each in choices][-1] == "stop"

    serve(options, check)


def test_beams_that_repeat_themselves_are_written_again_without_beams() -> None:
    options = FakeOptions(next_token=lambda *_: ord("a"))

    async def check(served: Served) -> None:
        fields = {"use_beam_search": "true", "n": "2", "max_completion_tokens": "60"}
        answer = await served.post(language="en", **fields)
        assert answer.json()["text"] == "a" * 60
        sent = [each.request.sampling for each in served.fake.engine.submitted]
        again = [each.temperature for each in sent if each.max_tokens == 60]
        assert again == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])

    serve(options, check)


def test_features_count_for_each_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_module, "MAX_PREPARED_BYTES", 4 * AUDIO_TOKENS * 5)
    beams = {"language": "en", "use_beam_search": "true"}

    async def check(served: Served) -> None:
        assert (await served.post(LONG, **beams, n="2")).status_code == 200
        refused = await served.post(LONG, **beams, n="3")
        assert refused.status_code == 400 and "fewer beams" in refused.json()["error"]["message"]

    serve(clips_of("a"), check)


def test_a_file_sent_as_text_is_refused() -> None:
    async def check(served: Served) -> None:
        answer = await served.fake.client.post(PATH, files={"file": (None, "hello")})
        assert answer.status_code == 422 and "-F file=@NAME" in answer.text

    serve(clips_of("a"), check)


def test_other_routes_name_these() -> None:
    async def check(served: Served) -> None:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            answer = await served.fake.client.post(path, json={})
            assert answer.status_code == 404
            message = answer.json()["error"]["message"]
            assert "transcribes speech" in message and PATH in message
        paths = (await served.fake.client.get("/openapi.json")).json()["paths"]
        body = paths[PATH]["post"]["requestBody"]["content"]
        assert list(body) == ["multipart/form-data"]

    serve(clips_of("a"), check)


def test_models_of_text_refuse_audio() -> None:
    async def main() -> None:
        async with fake_server() as fake:
            answer = await fake.client.post(PATH, files={"file": b"a"})
            assert answer.status_code == 404 and "generates text" in answer.text

    asyncio.run(main())


def test_transcriptions_count_against_the_limits_of_a_key() -> None:
    key = ApiKey.of("k", Caller("web", limits=KeyLimits(requests_per_minute=1)))

    async def main() -> None:
        async with fake_server(clips_of("a"), speech=fake_speech(), keys=[key]) as fake:
            statuses = [
                (
                    await fake.client.post(PATH, files={"file": SHORT}, headers={"X-API-Key": "k"})
                ).status_code
                for _ in range(2)
            ]
            assert statuses == [200, 429]

    asyncio.run(main())


def test_a_failure_ends_a_stream() -> None:
    options = FakeOptions(fail_at_position=2)

    async def check(served: Served) -> None:
        answer = await served.post(language="en", stream="true")
        assert "error" in events(answer.text)[-1]
        whole = await served.post(language="en")
        assert whole.status_code == 500

    serve(options, check)


def test_the_openai_client() -> None:
    async def main() -> None:
        async with fake_server(clips_of(" a| b|"), speech=fake_speech()) as fake:
            client = openai.AsyncOpenAI(
                api_key="none", base_url="http://fake/v1", http_client=fake.client
            )
            create = client.audio.transcriptions.create
            whole = await create(model="fake", file=SHORT, language="de")
            assert whole.text == "a| b|"
            verbose = await create(model="fake", file=SHORT, response_format="verbose_json")
            assert verbose.segments is not None and verbose.duration == 1.5
            assert [s.text for s in verbose.segments] == [" a", " b"]
            subtitles = await create(model="fake", file=SHORT, response_format="srt")
            assert subtitles.startswith("1\n")
            translated = await client.audio.translations.create(model="fake", file=SHORT)
            assert translated.text == "a| b|"
            stream: Any = await create(model="fake", file=SHORT, stream=True)
            text = "".join([c.choices[0]["delta"]["content"] async for c in stream])
            assert text == "a| b|"

    asyncio.run(main())


def test_the_routes_take_forms_only() -> None:
    rows = [row for row in ENDPOINTS if row.path.startswith("/v1/audio/")]
    assert len(rows) == 2 and all(row.queued and row.is_metered for row in rows)
