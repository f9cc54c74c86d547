"""Uploads, threads and features of audio are bounded, also for clients that go away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from starlette.types import Message

from pagemill.config.media import MediaConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.stop import Stop
from pagemill.server.errors import ApiError
from pagemill.server.media import MediaReader
from pagemill.server.speech import speech, upload
from pagemill.server.speech.speech import Speech
from pagemill.server.testing.fake_server import FakeServer, fake_server, script
from pagemill.server.testing.fake_speech import FakeFamily, FakeMedia, fake_speech

PATH = "/v1/audio/transcriptions"
RATE = 16_000
AUDIO = bytes([64]) * RATE
LONG = bytes([64]) * (5 * RATE)  # four clips
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="language"\r\n\r\nen\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
)
END = b"\r\n--x--\r\n"


class Blocked:
    """Implements `MediaFiles`: it reads when it is released."""

    max_bytes = 10**6

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.release = threading.Event()

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """Samples of one byte."""
        self.begun += 1
        self.release.wait(60)
        self.ended += 1
        return PreparedMedia("audio", np.frombuffer(data, np.int8).astype(np.float32))

    def read_opened(self, media: Any, /) -> PreparedMedia:
        """There is none."""
        raise NotImplementedError

    def place(self, prompt: RenderedPrompt, media: object) -> RenderedPrompt:
        """Without features."""
        return prompt

    def speech(self) -> Speech:
        """What reads such files."""
        media = MediaReader(MediaConfig(), {"audio": self}, self.place)
        return Speech(FakeFamily(), media)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


def request(
    server: FakeServer,
    gone: asyncio.Event,
    end: bytes = END,
    taken: asyncio.Event | None = None,
) -> asyncio.Task[None]:
    """Posts a file; its client waits for the answer until it is gone. Without an `end` it sends
    half a form. `taken` is set when the server has taken all that it sends."""
    pieces = [FORM + AUDIO, end] if end else [FORM + AUDIO]

    async def receive() -> Message:
        if pieces:
            body = pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(pieces) or not end}
        if taken is not None:
            taken.set()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"content-type", b"multipart/form-data; boundary=x")],
        "http_version": "1.1",
    }

    async def main() -> None:
        await server.app(scope, receive, send)

    return asyncio.create_task(main())


async def is_refused(server: FakeServer, why: str) -> None:
    answer = await server.client.post(PATH, files={"file": ("a", AUDIO)}, data={"language": "en"})
    assert answer.status_code == 429 and why in answer.text
    assert "retry-after" in answer.headers


async def is_answered(server: FakeServer, audio: bytes = AUDIO) -> None:
    answer = await server.client.post(PATH, files={"file": ("a", audio)}, data={"language": "en"})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("limit", "most", "why"),
    [
        ("MAX_WAITING", 1, "Too many requests send audio"),
        ("MAX_BYTES", 20_000, "more than 20000 bytes of audio at once"),
    ],
)
def test_a_slow_upload_takes_what_it_has_sent(
    limit: str, most: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, limit, most)

    async def main() -> None:
        async with fake_server(speech=fake_speech()) as server:
            gone, taken = asyncio.Event(), asyncio.Event()
            slow = request(server, gone, end=b"", taken=taken)
            await taken.wait()
            await is_refused(server, why)
            gone.set()
            await slow
            await is_answered(server)
            await is_answered(server, LONG)  # larger than all may be, but alone

    asyncio.run(main())


def test_files_take_room_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_BYTES", 10)

    async def main() -> None:
        uploads = upload.AudioUploads()
        async with uploads.upload(10, "a") as first, uploads.upload(10, "a") as second:
            await first.write(b"abc")
            await second.write(b"1234567")
            with pytest.raises(ApiError, match="more than 10 bytes"):
                await second.write(b"8")
            assert first.take() == b"abc" and second.take() == b"1234567"
            second.discard()  # what was read makes room while it is transcribed
            async with uploads.upload(7, "a") as third:
                await third.write(b"7654321")

    asyncio.run(main())


def test_tenants_share_the_room_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant that has more loses its newest file; one that has as much is refused."""
    monkeypatch.setattr(upload, "MAX_BYTES", 10)

    async def main() -> None:
        uploads = upload.AudioUploads()
        held, full = asyncio.Event(), asyncio.Event()

        async def hold(data: bytes) -> None:
            async with uploads.upload(len(data), "greedy") as file:
                await file.write(data)
                full.set()
                await held.wait()
                assert file.take() == data

        older = asyncio.ensure_future(hold(b"12345"))
        await full.wait()
        full.clear()
        newer = asyncio.ensure_future(hold(b"6789"))
        await full.wait()
        async with uploads.upload(4, "modest") as file:
            assert not newer.done(), "nothing has come"
            await file.write(b"ab")
            with pytest.raises(ApiError, match="Too many requests send audio") as refused:
                await newer
            assert refused.value.status == 429
            await file.write(b"cd")
            with pytest.raises(ApiError, match="send more than 10 bytes"):
                await file.write(b"ef")  # it would have more than the other one
            assert file.take() == b"abcd"
        held.set()
        await older
        async with uploads.upload(11, "modest") as file:
            await file.write(b"larger than" * 2)  # but alone

    asyncio.run(main())


def test_clients_that_leave_while_files_are_decoded_and_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speech, "READ_AT_ONCE", 1)
    files = Blocked()

    async def main() -> None:
        async with fake_server(speech=files.speech()) as server:
            active = server.state.lifecycle
            gone, there = asyncio.Event(), asyncio.Event()
            decoded = request(server, gone)
            await until(lambda: files.begun == 1)
            left, stays = request(server, gone), request(server, there)
            await until(lambda: active.active == 3)
            await asyncio.sleep(0.05)
            gone.set()
            await left
            await asyncio.sleep(0.05)
            assert not decoded.done() and files.begun == 1, "its thread still has the file"
            files.release.set()
            await decoded
            await until(lambda: files.ended == 2)
            there.set()
            await stays
            assert active.active == 0
            assert files.begun == 2, "not that of the client that left while it waited"

    try:
        asyncio.run(main())
    finally:
        files.release.set()


def test_files_are_read_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "READ_AT_ONCE", 1)
    files = Blocked()

    async def main() -> None:
        async with fake_server(speech=files.speech(), request_timeout=1.0) as server:
            gone = asyncio.Event()
            first = request(server, gone)
            await until(lambda: files.begun == 1)
            answer = await server.client.post(PATH, files={"file": ("a", AUDIO)})
            assert answer.status_code == 504 and "--request-timeout" in answer.text
            assert files.begun == 1
            files.release.set()
            gone.set()
            await first

    try:
        asyncio.run(main())
    finally:
        files.release.set()


@pytest.mark.parametrize(
    "options", [FakeOptions(next_token=script("abc"), step_s=0.01), FakeOptions(fail_at_position=2)]
)
def test_features_take_room_until_the_end(
    options: FakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is generated, however it ends."""
    monkeypatch.setattr(speech, "MAX_FEATURE_BYTES", 20)  # a clip's have 12

    async def main() -> None:
        async with fake_server(options, speech=fake_speech()) as server:
            posts = [request(server, asyncio.Event()) for _ in range(4)]
            most = 0
            while not all(post.done() for post in posts):
                most = max(most, server.async_engine.num_live)
                await asyncio.sleep(0.001)
            assert most == 1, "at a time, though 4 files may be read"
            gone = asyncio.Event()
            leaving = request(server, gone)
            gone.set()
            await leaving
            await request(server, asyncio.Event())
            assert server.engine.stats().num_submitted >= 5

    asyncio.run(main())


class CountingMedia(FakeMedia):
    """Of which clips are counted as they are encoded."""

    def __init__(self) -> None:
        self.num_placed = 0

    async def place(
        self,
        prompt: RenderedPrompt,
        media: Sequence[PreparedMedia],
        tenant: str,
        budget: object = None,
    ) -> RenderedPrompt:
        """Counts."""
        self.num_placed += 1
        return await super().place(prompt, media, tenant)


def refuse(number: int) -> None:
    raise ApiError(400, f"{number} are too many")


def test_long_files_are_refused_before_all_clips_are_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speech, "MAX_PREPARED_BYTES", 24)  # a clip's have 12

    async def main() -> None:
        media = CountingMedia()
        reader = Speech(FakeFamily(), media)
        async with reader.uploads.upload(0, "a") as file:
            await file.write(LONG)
            with pytest.raises(ApiError, match="5 seconds of audio, of which 2 can be read"):
                await reader.sounds(file, lambda number: None, tenant="")
            assert media.num_placed == 1
        async with reader.uploads.upload(0, "a") as file:
            await file.write(LONG)
            with pytest.raises(ApiError, match="4 are too many"):
                await reader.sounds(file, refuse, tenant="")
            assert media.num_placed == 1

    asyncio.run(main())
