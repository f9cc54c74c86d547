"""Media of requests that are embeddings, or that other servers encode."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import numpy as np
import pytest

from pagemill.config import ConfigError, EngineConfig, MediaConfig, build, for_media
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.task import Task
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.errors import RenderError
from pagemill.render.media.cache import PreparedCache
from pagemill.render.media.embeds import MediaEmbeds, embeds_part
from pagemill.render.media.encoder_servers import (
    EncoderFiles,
    EncoderServers,
    MediaUnavailableError,
)
from pagemill.render.media.media_files import MediaFiles
from pagemill.render.stop import Stop
from pagemill.server import media, media_apart
from pagemill.server.errors import ApiError
from pagemill.server.media import MediaReader, media_as_embeds, open_media
from pagemill.server.media_work import KeptMedia
from pagemill.server.protocol.media import SentMedia, media_parts
from pagemill.server.testing.fake_encoder import FakeFiles
from pagemill.server.testing.fake_server import fake_server

OWNER = MediaOwner("key", "tenant", "salt")
URL = "http://127.0.0.1:1"


class FakeServers(EncoderServers):
    """Encodes a file as one row, its first byte; `files` are those that were sent."""

    def __init__(self) -> None:
        super().__init__([URL], 1)
        self.files: list[bytes] = []

    def encode(self, kind: MediaKind, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        assert stop is not None
        self.files.append(data)
        if data == b"?":
            raise RenderError("it is no image")
        if data == b"!":
            raise MediaUnavailableError("no server has encoded the image", retry_after_s=9)
        self.count(URL, "completed")
        return PreparedMedia(kind, np.zeros(0, np.float32), embeddings=row(data[0]))


def row(value: float) -> np.ndarray:
    return np.full((1, 3), value, np.float32)


def reader(
    cache_bytes: int = 2**20, max_images: int = 16
) -> tuple[MediaReader, FakeServers, RequestMetrics]:
    """One whose images another server encodes, and which takes embeddings."""
    servers, metrics = FakeServers(), RequestMetrics("model", 100)
    files: dict[MediaKind, MediaFiles] = {"image": EncoderFiles("image", 1000, servers)}
    kept = KeptMedia(PreparedCache(cache_bytes), metrics)
    config = MediaConfig(limit_mm_per_prompt={"image": max_images})
    made = MediaReader(config, files, lambda prompt, _: prompt, kept=kept)
    made.embeds = MediaEmbeds(3, 2**20)
    return made, servers, metrics


def sent(*contents: bytes | np.ndarray) -> list[SentMedia]:
    """Files, and rows of embeddings."""
    parts: list[dict[str, Any]] = []
    for content in contents:
        if isinstance(content, bytes):
            url = f"data:;base64,{base64.b64encode(content).decode()}"
            parts.append({"type": "image_url", "image_url": url})
        else:
            parts.append(embeds_part("image", content, {}))
    return media_parts([{"role": "user", "content": parts}])


def values(found: Any) -> list[float]:
    return [each.embeddings[0, 0] for each in found]


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_equal_files_are_sent_once(cache_bytes: int) -> None:
    read, servers, metrics = reader(cache_bytes)

    async def run() -> None:
        for _ in range(2):
            found = await read.read(sent(b"a", row(7), b"b", b"a", b"a"), OWNER)
            assert values(found) == [97, 7, 98, 97, 97]

    asyncio.run(run())
    times = 1 if cache_bytes else 2
    assert sorted(servers.files) == sorted([b"a", b"b"] * times)
    shown = metrics.render().decode().splitlines()
    (line,) = [each for each in shown if "encoder_requests_total{" in each]
    assert 'outcome="completed"' in line and f'server="{URL}"' in line
    assert float(line.rpartition(" ")[2]) == 2 * times


def test_what_other_servers_refuse_or_miss() -> None:
    read, _, _ = reader()
    for content, status, why in (
        (b"?", 400, r"`messages\[0\].content\[1\]` cannot be read: it is no image"),
        (b"!", 503, r"`messages\[0\].content\[1\]`: no server has encoded the image"),
        (b"a" * 1001, 400, "1000 bytes"),
    ):
        with pytest.raises(ApiError, match=why) as error:
            asyncio.run(read.read(sent(b"a", content), OWNER))
        assert error.value.status == status
        assert error.value.retry_after_s == (9 if status == 503 else 0)
    with pytest.raises(ApiError, match="media are encoded by other servers"):
        asyncio.run(read.read_file("image", b"a", "file", OWNER.tenant))
    assert values(asyncio.run(read.read(sent(b"a"), OWNER))) == [97]


def test_embeddings_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prepared in their place counts, too."""
    read, _, _ = reader()
    monkeypatch.setattr(media, "MAX_PREPARED_BYTES", 64)
    asyncio.run(read.read(sent(row(1), row(2)), OWNER))
    shaped = media_parts([{"content": [embeds_part("image", row(1), {"shape": [14]})]}])
    for parts in (sent(*[row(1)] * 6), shaped):
        with pytest.raises(ApiError, match="at most 64 bytes"):
            asyncio.run(read.read(parts, OWNER))


def test_files_that_are_encoded_apart_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of them is not sent when those that came back are too large."""
    monkeypatch.setattr(media, "MAX_PREPARED_BYTES", 24)
    monkeypatch.setattr(media_apart, "ENCODE_THREADS", 1)
    read, servers, _ = reader(max_images=100)
    with pytest.raises(ApiError, match="too large together.*at most 24 bytes"):
        asyncio.run(read.read(sent(*(b"%d" % number for number in range(100))), OWNER))
    assert 3 <= len(servers.files) < 50


def test_embeddings_alone() -> None:
    read = media_as_embeds(MediaConfig(), {"image": "no encoder"}, 3, lambda prompt, _: prompt)
    assert values(asyncio.run(read.read(sent(row(5)), OWNER))) == [5] and not read.kinds
    for parts, why in ((sent(b"a"), "no encoder"), (sent(row(5)) * 17, "17 images; at most 16")):
        with pytest.raises(ApiError, match=why):
            asyncio.run(read.read(parts, OWNER))
    with pytest.raises(ApiError, match="files of image cannot be read: no encoder"):
        read.max_bytes("image", "file")
    without = MediaReader(MediaConfig(), {}, lambda prompt, _: prompt)
    with pytest.raises(ApiError, match="--enable-mm-embeds"):
        asyncio.run(without.read(sent(row(5)), OWNER))


def test_videos_are_not_encoded_apart(tmp_path: Any) -> None:
    config = MediaConfig(encoder_urls=(URL,))
    read = open_media(config, ("image", "video"), tmp_path, 9, lambda prompt, _: prompt)
    video = SentMedia("video", "messages[0].content[0]", "data:,")
    with pytest.raises(ApiError, match="a video is not encoded by other servers"):
        asyncio.run(read.read([video], OWNER))
    assert read.kinds == ("image",)


@pytest.mark.parametrize(
    ("options", "fields", "words"),
    [
        ({"mm_encoder_only": True}, {}, "leave out --mm-encoder-only"),
        ({"language_model_only": True}, {}, "--language-model-only"),
        ({}, {"mm_processor_kwargs": {"max_pixels": 5}}, "give --mm-processor-kwargs"),
    ],
)
def test_options_of_servers_without_encoders(
    options: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    config = MediaConfig(encoder_urls=(URL,), **fields)
    with pytest.raises(ConfigError, match=words):
        for_media(build(EngineConfig, options), config)
    assert for_media(build(EngineConfig, {}), MediaConfig(encoder_urls=(URL,))).encoders_apart


def test_the_route_of_encoders_reads_files_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(files: FakeFiles, data: bytes, stop: Stop) -> PreparedMedia:
        while not stop.is_set():
            time.sleep(0.001)
        raise RenderError("its reader ended")

    async def main() -> None:
        monkeypatch.setattr(FakeFiles, "read", slow)
        options = FakeOptions(task=Task.MEDIA_EMBED, pooled_size=4)
        part = {"type": "image_url", "image_url": "data:;base64,eA=="}
        async with fake_server(options) as server, asyncio.timeout(60):
            body = {"input": [part], "timeout": 0.05}
            answer = await server.client.post("/v1/media/embeddings", json=body)
            assert answer.status_code == 504 and "`timeout`" in answer.text

    asyncio.run(main())
