"""Audio in messages of a chat: its parts, limits, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from pagemill.config import MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt
from pagemill.render.errors import RenderError
from pagemill.render.media.cache import PreparedCache
from pagemill.render.media.media_files import MediaFiles, open_files
from pagemill.server import media
from pagemill.server.errors import ApiError
from pagemill.server.media import MediaReader, open_media
from pagemill.server.media_work import KeptMedia
from pagemill.server.protocol.chat import check_messages
from pagemill.server.protocol.media import SentMedia, media_parts, without_urls

OWNER = MediaOwner()
PROMPT = RenderedPrompt.of([1])


def base64_of(seconds: float = 0.1, level: float = 0.5) -> str:
    """A WAV file."""
    file = io.BytesIO()
    samples = np.full(int(seconds * 16_000), level, np.float32)
    soundfile.write(file, samples, 16_000, format="WAV", subtype="FLOAT")
    return base64.b64encode(file.getvalue()).decode()


def messages(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "a"}, *parts]}]


def inner(data: str, **fields: Any) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}, **fields}


def opened(folder: Path, config: MediaConfig | None = None) -> MediaReader:
    """Of a model that takes audio."""
    settings = {"feature_extractor_type": "WhisperFeatureExtractor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    kept = KeptMedia(PreparedCache(2**20))
    found = open_media(
        config or MediaConfig(), ("audio",), folder, 9, lambda prompt, _: prompt, kept
    )
    assert isinstance(found, MediaReader)
    return found


def read(reader: MediaReader, *parts: dict[str, Any]) -> list[PreparedMedia]:
    sent = messages(*parts)
    check_messages(sent)
    return list(asyncio.run(reader.read(media_parts(sent), OWNER)))


def test_parts() -> None:
    url = {"type": "audio_url", "audio_url": {"url": "https://audio.example/a.mp3"}}
    sent = messages(url, inner("YWJj", uuid="b"), {"type": "audio_url", "uuid": "c"})
    check_messages(sent)
    assert media_parts(sent) == [
        SentMedia("audio", "messages[0].content[1]", "https://audio.example/a.mp3"),
        SentMedia("audio", "messages[0].content[2]", "data:audio/*;base64,YWJj", "b"),
        SentMedia("audio", "messages[0].content[3]", "", "c"),
    ]
    text = {"type": "text", "text": "a"}
    assert without_urls(sent) == [{"role": "user", "content": [text, *[{"type": "audio"}] * 3]}]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "input_audio", "input_audio": "YWJj"}, "content.1..input_audio` must be"),
        ({"type": "input_audio", "input_audio": {"data": 7}}, "content.1..input_audio` must be"),
        ({"type": "input_audio"}, "content.1..input_audio` must be"),
        ({"type": "audio_url", "audio_url": {}}, "content.1..audio_url` must be"),
        ({"type": "audio_url", "uuid": ""}, "content.1..uuid` must be"),
        ({"type": "audio", "audio": "x"}, "audio_url, image_url, input_audio"),
    ],
)
def test_parts_that_are_none(part: dict[str, Any], why: str) -> None:
    with pytest.raises(ApiError, match=why):
        check_messages(messages(part))


def test_audio_is_read_and_kept(tmp_path: Path) -> None:
    reader = opened(tmp_path)
    assert reader.kinds == ("audio",)
    (audio,) = read(reader, inner(base64_of(), uuid="a"))
    np.testing.assert_array_equal(audio.values, np.full(1600, 0.5, np.float32))
    (again,) = read(reader, {"type": "audio_url", "audio_url": None, "uuid": "a"})
    assert again is audio
    # An image of the same name is another item.
    with pytest.raises(ApiError, match=r"`messages\[0\].content\[1\]` has the type of image"):
        read(reader, {"type": "image_url", "uuid": "a"})


def test_a_file_is_fetched(tmp_path: Path) -> None:
    def fetched(url: str, **options: Any) -> bytes:
        reader = opened(tmp_path, MediaConfig(**options))
        return asyncio.run(reader.fetch_file("audio", url, "file_url", ""))

    url = f"data:audio/wav;base64,{base64_of()}"
    assert fetched(url) == base64.b64decode(base64_of())
    for refused, why, options in (
        (url, "larger than 1024 bytes", {"max_audio_bytes": 1024}),
        (url, "--limit-mm-per-prompt, audio", {"limit_mm_per_prompt": {"audio": 0}}),
        ("https://audio.example/a.mp3", "`file_url` cannot be fetched: ", {}),
    ):
        with pytest.raises(ApiError, match=why) as error:
            fetched(refused, **options)
        assert (error.value.status, error.value.param) == (400, "file_url")


@pytest.mark.parametrize(
    ("parts", "options", "why"),
    [
        ([inner("YWJj")], {}, r"content\[1\]` cannot be read: it cannot be decoded"),
        ([inner("?")], {}, r"content\[1\]` cannot be read: .* base64"),
        ([inner(base64_of(1.5))], {"max_audio_seconds": 1}, "longer than 1 s"),
        ([inner(base64_of())], {"max_audio_bytes": 1024}, "larger than 1024 bytes"),
        ([inner(base64_of())] * 2, {"limit_mm_per_prompt": {"audio": 1}}, "2 audios; at most 1"),
        ([inner(base64_of())], {"limit_mm_per_prompt": {"audio": 0}}, "1 audios; at most 0"),
        (
            [{"type": "image_url", "image_url": {"url": "data:,"}}],
            {"limit_mm_per_prompt": {"audio": 0}},
            "takes audio, and this server none .--limit-mm-per-prompt",
        ),
        ([inner(base64_of(level=np.nan))], {}, "samples that are not finite"),
    ],
)
def test_refusals(
    parts: list[dict[str, Any]], options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    reader = opened(tmp_path, MediaConfig(**options))
    with pytest.raises(ApiError, match=why) as error:
        read(reader, *parts)
    assert error.value.status == 400


def test_a_cancelled_request_waits_for_its_threads(tmp_path: Path) -> None:
    """What it has fetched counts until then."""
    release = threading.Event()
    begun: list[str] = []

    def fetch(url: str) -> bytes:
        begun.append(url)
        if url == "https://a.example/none":
            raise RenderError("there is none")
        release.wait(60)
        return b""

    opened(tmp_path)
    files: dict[MediaKind, MediaFiles] = {"audio": open_files("audio", MediaConfig(), tmp_path, 9)}

    async def main() -> None:
        reader = MediaReader(MediaConfig(), files, lambda prompt, _: prompt, fetch)
        for last in ("a", "none"):
            begun.clear()
            release.clear()
            urls = ["https://a.example/1", f"https://a.example/{last}"]
            sent = [SentMedia("audio", "part", url) for url in urls]
            reading = asyncio.create_task(reader.read(sent, OWNER))
            while len(begun) < 2:
                await asyncio.sleep(0.001)
            if last == "a":
                reading.cancel()
            await asyncio.sleep(0.02)
            assert not reading.done()
            release.set()
            with pytest.raises(asyncio.CancelledError if last == "a" else ApiError):
                await reading

    try:
        asyncio.run(main())
    finally:
        release.set()


def test_what_the_model_reads_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = MediaFeatures(np.zeros((10, 10), np.float32), 5)
    placed = RenderedPrompt(np.zeros(5, np.int32), (MediaItem("a", 0, features),))
    opened(tmp_path)
    reader = open_media(MediaConfig(), ("audio",), tmp_path, 9, lambda prompt, _: placed)
    audio = PreparedMedia("audio", np.zeros(9, np.float32))
    assert asyncio.run(reader.place(PROMPT, [audio], "")) is placed
    monkeypatch.setattr(media, "MAX_PREPARED_BYTES", 399)
    with pytest.raises(ApiError, match="400 bytes, and may have 399; send less"):
        asyncio.run(reader.place(PROMPT, [audio], ""))
