"""Images of requests: what is read, in which threads, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.config import ConfigError, MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.errors import RenderError
from pagemill.render.media.decode import ImageLimits
from pagemill.render.media.image_files import ImageFiles
from pagemill.render.media.media_files import MediaFiles
from pagemill.render.media.processors import Prepared
from pagemill.render.stop import Stop
from pagemill.server import media
from pagemill.server.errors import ApiError
from pagemill.server.media import MediaReader, NoMedia, open_media
from pagemill.server.protocol.media import SentMedia, media_parts, without_urls
from pagemill.server.testing.fake_server import fake_server

URL = "https://images.example/cat.png"
PROMPT = RenderedPrompt.of([1])
OWNER = MediaOwner("key", "tenant", "salt")


def file_of(width: int = 4) -> bytes:
    """A PNG file."""
    file = io.BytesIO()
    Image.new("RGB", (width, 2)).save(file, "PNG")
    return file.getvalue()


def data_url(width: int = 4) -> str:
    """The same as a data: URL."""
    return "data:image/png;base64," + base64.b64encode(file_of(width)).decode()


def width_of(image: Image.Image) -> np.ndarray:
    """A processor whose result says which image it was."""
    return np.full((3, 1, 1), image.width, np.float32)


def reader_of(
    processor: Callable[[Image.Image], Prepared],
    config: MediaConfig | None = None,
    fetch: Callable[[str], bytes] | None = None,
) -> MediaReader:
    """One whose images `processor` prepares."""
    config = config or MediaConfig()
    limits = ImageLimits(config.max_image_bytes, config.max_image_pixels)
    files: dict[MediaKind, MediaFiles] = {"image": ImageFiles(limits, processor, config.background)}
    return MediaReader(config, files, lambda prompt, _: prompt, fetch)


def reader(
    fetch: Callable[[str], bytes] = lambda url: file_of(9), config: MediaConfig | None = None
) -> MediaReader:
    """One whose images are their widths."""
    return reader_of(width_of, config, fetch)


def sent(*urls: str) -> list[SentMedia]:
    """Parts of a message."""
    return [SentMedia("image", f"messages[0].content[{at}]", url) for at, url in enumerate(urls)]


def test_order_is_that_of_the_parts():
    async def run() -> None:
        read = await reader().read(sent(data_url(5), URL, data_url(6), URL), OWNER)
        assert [int(image.values.flat[0]) for image in read] == [5, 9, 6, 9]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("urls", "config", "why"),
    [
        ([data_url()] * 3, MediaConfig(limit_mm_per_prompt={"image": 2}), "3 images; at most 2"),
        ([data_url()], MediaConfig(limit_mm_per_prompt={"image": 0}), "at most 0"),
        ([data_url(), "data:x"], MediaConfig(), r"`messages\[0\].content\[1\]` cannot be read"),
        ([data_url(2000)], MediaConfig(max_image_pixels=1024), "at most 1024"),
        (["data:;base64," + "A" * 9000], MediaConfig(max_image_bytes=1024), "1024 bytes"),
    ],
)
def test_refusals(urls: list[str], config: MediaConfig, why: str):
    with pytest.raises(ApiError, match=why) as error:
        asyncio.run(reader(config=config).read(sent(*urls), OWNER))
    assert error.value.status == 400 and error.value.param == "messages"


def test_images_together_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(media, "MAX_PREPARED_BYTES", 30)
    asyncio.run(reader().read(sent(data_url(), data_url()), OWNER))
    with pytest.raises(ApiError, match="at most 30 bytes; send smaller ones, or fewer"):
        asyncio.run(reader().read(sent(data_url(), data_url(), data_url()), OWNER))


@pytest.mark.parametrize("grid", [None, (1, 1, 1)])
def test_fewer_tiled_images_are_wanted(
    grid: tuple[int, int, int] | None, monkeypatch: pytest.MonkeyPatch
):
    """Smaller images are made of as many tiles."""
    monkeypatch.setattr(media, "MAX_PREPARED_BYTES", 30)
    tiles = np.zeros((2, 3, 1, 1), np.float32)
    prepared = tiles if grid is None else (tiles, grid)
    tiled = reader_of(lambda _: prepared)
    with pytest.raises(ApiError, match="at most 30 bytes; send fewer"):
        asyncio.run(tiled.read(sent(data_url(), data_url()), OWNER))


def test_failed_fetch_names_the_part():
    def fail(url: str) -> bytes:
        raise RenderError("the host is away")

    with pytest.raises(ApiError, match=r"content\[1\]` cannot be read: the host is away"):
        asyncio.run(reader(fail).read(sent(data_url(), URL), OWNER))


def test_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(media, "MAX_WAITING", 2)
    go = threading.Event()

    def wait(url: str) -> bytes:
        assert go.wait(60)
        return file_of()

    async def run() -> None:
        slow = reader(wait)
        waiting = [asyncio.create_task(slow.read(sent(URL), OWNER)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as error:
            await slow.read(sent(data_url()), OWNER)
        assert error.value.status == 429
        assert await slow.read([], OWNER) == ()
        go.set()
        await asyncio.gather(*waiting)
        assert len(await slow.read(sent(data_url()), OWNER)) == 1

    asyncio.run(run())


def test_decoding_is_stopped_and_not_continued():
    """The item that is being read learns of it, and the next one is not begun."""

    class Slow:
        max_bytes = 10**6

        def __init__(self) -> None:
            self.begun = threading.Event()
            self.num_read = 0

        def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
            assert stop is not None
            self.num_read += 1
            self.begun.set()
            while not stop.is_set():
                time.sleep(0.001)
            return PreparedMedia("image", np.zeros(1, np.float32))

        def read_opened(self, media: Any, /) -> PreparedMedia:
            raise NotImplementedError

    async def run() -> None:
        files = Slow()
        slow = MediaReader(MediaConfig(), {"image": files}, lambda prompt, _: prompt)
        reading = asyncio.create_task(slow.read(sent(data_url(), data_url()), OWNER))
        while not files.begun.is_set():
            await asyncio.sleep(0.001)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert files.num_read == 1

    asyncio.run(run())


def test_one_tenant_leaves_others_a_share(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(media, "MAX_WAITING", 12)
    go = threading.Event()

    def wait(url: str) -> bytes:
        assert go.wait(60)
        return file_of()

    async def run() -> None:
        slow = reader(wait)
        busy = OWNER._replace(tenant="busy")
        waiting = [asyncio.create_task(slow.read(sent(URL), busy)) for _ in range(12)]
        await asyncio.sleep(0)
        other = asyncio.create_task(slow.read(sent(data_url()), OWNER))
        assert len(await other) == 1
        go.set()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, BaseException)]
        assert len(refused) == 1 and isinstance(refused[0], ApiError)

    asyncio.run(run())


def test_cancelled_requests_leave(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(media, "MAX_WAITING", 1)
    go = threading.Event()

    def wait(url: str) -> bytes:
        assert go.wait(60)
        return file_of()

    async def run() -> None:
        slow = reader(wait)
        for _ in range(3):
            go.clear()
            reading = asyncio.ensure_future(slow.read(sent(URL), OWNER))
            await asyncio.sleep(0.01)
            reading.cancel()
            with pytest.raises(ApiError, match="Too many"):  # its thread still works
                await slow.read(sent(data_url()), OWNER)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert len(await slow.read(sent(data_url()), OWNER)) == 1

    asyncio.run(run())


def test_domains_are_needed_for_urls():
    plain = reader_of(width_of)
    with pytest.raises(ApiError, match="--allowed-media-domains"):
        asyncio.run(plain.read(sent(URL), OWNER))


def test_model_without_a_known_processor(tmp_path: Path):
    none = open_media(MediaConfig(), ("image",), tmp_path, 9, lambda prompt, _: prompt)
    assert isinstance(none, NoMedia)
    with pytest.raises(ApiError, match=r"preprocessor_config\.json"):
        asyncio.run(none.read(sent(URL), OWNER))
    assert asyncio.run(none.place(PROMPT, (), "")) is PROMPT


def test_unknown_settings_end_the_start(tmp_path: Path):
    settings = '{"image_processor_type": "CLIPImageProcessor"}'
    (tmp_path / "preprocessor_config.json").write_text(settings)
    config = MediaConfig(mm_processor_kwargs={"crop": 3})
    with pytest.raises(ConfigError, match="--mm-processor-kwargs: crop cannot be set"):
        open_media(config, ("image",), tmp_path, 9, lambda prompt, _: prompt)


def test_transparent_images_have_the_servers_background():
    def first_color(image: Image.Image) -> np.ndarray:
        return np.asarray(image, np.float32)[:1]

    config = MediaConfig(media_io_kwargs={"image": {"rgba_background_color": [1, 2, 3]}})
    file = io.BytesIO()
    Image.new("RGBA", (1, 1)).save(file, "PNG")
    server = reader_of(first_color, config, lambda _: file.getvalue())
    (image,) = asyncio.run(server.read(sent(URL), OWNER))
    assert image.values.tolist() == [[[1, 2, 3]]]


def test_parts_of_messages():
    image = {"type": "image_url", "image_url": {"url": URL}}
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": ["b", image, {"type": "image_url", "image_url": "data:,"}]},
    ]
    assert media_parts(messages) == [
        SentMedia("image", "messages[1].content[1]", URL),
        SentMedia("image", "messages[1].content[2]", "data:,"),
    ]
    bare = {"role": "user", "content": ["b", {"type": "image"}, {"type": "image"}]}
    assert without_urls(messages) == [messages[0], bare]


@pytest.mark.parametrize(
    ("route", "body", "part"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": URL}]}]},
            "`messages[0].content[0]",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]},
            "`input[0].content[0]",
        ),
        (
            "/v1/messages",
            {
                "max_tokens": 1,
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image", "source": {"type": "url", "url": URL}}],
                    }
                ],
            },
            "`messages[0].content[0]",
        ),
    ],
)
def test_model_without_images_names_the_part(route: str, body: dict[str, object], part: str):
    async def run() -> None:
        async with fake_server() as fake:
            answer = await fake.client.post(route, json=body)
            assert answer.status_code == 400
            message = answer.json()["error"]["message"]
            assert part in message and "this model takes parts of type `text` only" in message

    asyncio.run(run())
