"""Images that a server keeps: found by content or by `uuid`, by their owner only, and counted."""

from __future__ import annotations

import asyncio
import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pagemill.config import MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.media.cache import PreparedCache
from pagemill.render.media.decode import ImageLimits
from pagemill.render.media.image_files import ImageFiles
from pagemill.render.media.media_files import MediaFiles
from pagemill.server.access.caller import OPERATOR, Caller
from pagemill.server.chat import rendered_prompt
from pagemill.server.endpoints.engine import reset_mm_cache
from pagemill.server.errors import ApiError
from pagemill.server.media import MediaReader
from pagemill.server.media_work import KeptMedia
from pagemill.server.protocol.chat import ChatRequest, check_messages
from pagemill.server.protocol.media import SentMedia, media_parts
from pagemill.server.responses.input import items_of, messages_of
from pagemill.server.testing.fake_server import fake_server

URL = "https://images.example/cat.png"
OWNER = MediaOwner("key", "tenant", "salt")


def file_of(width: int) -> bytes:
    """A PNG file."""
    file = io.BytesIO()
    Image.new("RGB", (width, 2)).save(file, "PNG")
    return file.getvalue()


def sent(width: int, uuid: str = "") -> SentMedia:
    """An image in a data: URL."""
    url = "data:image/png;base64," + base64.b64encode(file_of(width)).decode()
    return SentMedia("image", "messages[0].content[0]", url, uuid)


def only_named(uuid: str) -> SentMedia:
    """A part without data."""
    return SentMedia("image", "messages[0].content[0]", "", uuid)


class Server:
    """A reader that keeps images, and the widths of those that it fetched and prepared."""

    def __init__(self, max_bytes: int = 2**20) -> None:
        self.prepared: list[int] = []
        self.fetched: list[str] = []
        self.metrics = RequestMetrics("m", 100)
        kept = KeptMedia(PreparedCache(max_bytes), self.metrics)
        files: dict[MediaKind, MediaFiles] = {
            "image": ImageFiles(ImageLimits(2**20, 2**20), self._prepare)
        }
        self.reader = MediaReader(MediaConfig(), files, lambda prompt, _: prompt, self._fetch, kept)

    def _prepare(self, image: Image.Image) -> np.ndarray:
        self.prepared.append(image.width)
        return np.full((3, 1, 1), image.width, np.float32)

    def _fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        return file_of(9)

    def read(self, *images: SentMedia, owner: MediaOwner = OWNER) -> list[int]:
        """The widths of the images that were read."""
        read = asyncio.run(self.reader.read(images, owner))
        return [int(image.values.flat[0]) for image in read]

    def counts(self) -> tuple[float, float]:
        """Queries and hits."""
        value = self.metrics.registry.get_sample_value
        labels = {"model_name": "m", "engine": "0"}
        queries, hits = (
            value(f"pagemill:mm_cache_{name}_total", labels) for name in ("queries", "hits")
        )
        return queries or 0, hits or 0


def test_equal_files_are_prepared_once():
    server = Server()
    assert server.read(sent(4), sent(5)) == [4, 5]
    assert server.read(sent(5), sent(4), sent(6)) == [5, 4, 6]
    assert server.prepared == [4, 5, 6]
    assert server.counts() == (5, 2)
    # Another key may find it, another salt may not.
    server.read(sent(4), owner=OWNER._replace(key_id="other", tenant="other"))
    assert server.prepared == [4, 5, 6]
    server.read(sent(4), owner=OWNER._replace(cache_salt="other"))
    assert server.prepared == [4, 5, 6, 4]


def test_a_named_image_is_sent_once():
    server = Server()
    assert server.read(
        SentMedia("image", "messages[0].content[0]", URL, "cat"), sent(5, "dog")
    ) == [9, 5]
    assert server.read(only_named("dog"), sent(7), only_named("cat")) == [5, 7, 9]
    # The name says what the image is: its URL is not read again.
    assert server.read(SentMedia("image", "messages[0].content[0]", URL, "cat")) == [9]
    assert server.fetched == [URL] and server.prepared == [9, 5, 7]
    assert server.counts() == (6, 3)


@pytest.mark.parametrize("field", MediaOwner._fields)
def test_no_other_owner_finds_a_name(field: str):
    server = Server()
    server.read(sent(5, "dog"))
    other = OWNER._replace(**{field: "other"})
    with pytest.raises(ApiError, match=r"`messages\[0\].content\[0\]` has no file") as error:
        server.read(only_named("dog"), owner=other)
    assert error.value.status == 400
    # What another owner sends under the name does not change the image.
    assert server.read(sent(6, "dog"), owner=other) == [6]
    assert server.read(only_named("dog")) == [5]


def test_what_is_forgotten_has_to_be_sent_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pagemill.server.media.MAX_WAITING", 1)
    server = Server()
    server.read(sent(5, "dog"))
    server.reader.reset_cache()
    for _ in range(3):  # refusals leave the queue
        with pytest.raises(ApiError, match="send the image again"):
            server.read(only_named("dog"))
    assert server.read(sent(5, "dog")) == [5]
    assert server.prepared == [5, 5]


def test_a_server_that_keeps_nothing():
    server = Server(0)
    assert server.read(sent(5, "dog"), sent(5)) == [5, 5]
    with pytest.raises(ApiError, match="send the image again"):
        server.read(only_named("dog"))
    assert server.prepared == [5, 5] and server.counts() == (0, 0)


def part(**fields: Any) -> list[dict[str, Any]]:
    """A message with one image."""
    return [{"role": "user", "content": [{"type": "image_url", **fields}]}]


@pytest.mark.parametrize("url", [{}, {"image_url": None}, {"image_url": {}}])
def test_parts_may_have_a_name_alone(url: dict[str, Any]):
    messages = part(uuid="a", **url)
    check_messages(messages)
    assert media_parts(messages) == [SentMedia("image", "messages[0].content[0]", "", "a")]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"uuid": ""}, "uuid"),
        ({"uuid": "a" * 257}, "uuid"),
        ({"uuid": 7, "image_url": URL}, "uuid"),
        ({"uuid": None}, "image_url"),
        ({"uuid": "a", "image_url": 7}, "image_url"),
        ({"uuid": "a", "image_url": {"url": 7}}, "image_url"),
    ],
)
def test_refused_parts(fields: dict[str, Any], what: str):
    with pytest.raises(ApiError, match=rf"content\[0\].{what}`"):
        check_messages(part(**fields))


def test_images_of_responses_have_names():
    content = [{"type": "input_image", "uuid": "a"}]
    (item,) = items_of([{"role": "user", "content": content}])
    assert item["content"] == content
    chat = messages_of(None, [item])
    assert media_parts(chat) == [SentMedia("image", "messages[0].content[0]", "", "a")]
    with pytest.raises(ApiError, match=r"content\[0\].uuid`"):
        items_of([{"role": "user", "content": [{"type": "input_image", "uuid": 1}]}])


def test_a_request_is_its_callers():
    """The key, the tenant and the salt of a request are its images' owner; the operator's route
    empties the cache."""

    class Recorder:
        kinds = ("image",)
        owners: list[MediaOwner]
        resets = 0

        async def read(self, sent: Any, owner: MediaOwner, budget: object) -> list[np.ndarray]:
            self.owners = [owner]
            return []

        async def place(
            self, prompt: RenderedPrompt, images: Any, tenant: str, budget: object
        ) -> RenderedPrompt:
            return prompt

        def reset_cache(self) -> None:
            self.resets += 1

    async def run() -> None:
        async with fake_server() as fake:
            model = fake.state.models.resolve(None, OPERATOR).model
            model.rendering.media = recorder = Recorder()
            request = ChatRequest(messages=part(uuid="a"), cache_salt="s")
            await rendered_prompt(model.rendering, request, Caller("k", tenant="t"))
            assert recorder.owners == [MediaOwner("k", "t", "s")]
            assert (await reset_mm_cache(fake.state, {}, OPERATOR)).success
            assert recorder.resets == 1

    asyncio.run(run())
