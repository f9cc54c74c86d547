"""Images in the playground: attached to a message, sent with it, kept with the chat."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pytest
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.media import NoMedia
from pagemill.server.protocol.media import SentMedia
from PIL import Image
from playwright.sync_api import Browser, expect

from tests.playground.pages import (
    BROWSER,
    BROWSER_REASON,
    browser,
    playground,
    send,
    wait_for_end,
)
from tests.playground.scripted_server import scripted_server

pytestmark = pytest.mark.skipif(BROWSER is None, reason=BROWSER_REASON)


@pytest.fixture(scope="module", name="opened")
def _opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


class Seen(NoMedia):
    """Takes images and only notes them."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = ("image",)
        self.urls: list[str] = []

    async def read(
        self, sent: Sequence[SentMedia], owner: MediaOwner, budget: object = None
    ) -> Sequence[str]:
        self.urls += [image.url for image in sent]
        return ()

    async def place(
        self, prompt: RenderedPrompt, images: Sequence[str], tenant: str, budget: object = None
    ) -> RenderedPrompt:
        return prompt


def _picture(width: int, height: int) -> dict[str, object]:
    with io.BytesIO() as file:
        Image.new("RGBA", (width, height), (200, 30, 30, 128)).save(file, "PNG")
        return {"name": "red.png", "mimeType": "image/png", "buffer": file.getvalue()}


def test_images_are_sent_and_kept(opened: Browser) -> None:
    images = Seen()
    with scripted_server("A square.", images=images) as (url, _), playground(opened, url) as page:
        attached = page.get_by_role("list", name="Attached images").locator("img")
        text = {"name": "a.txt", "mimeType": "text/plain", "buffer": b"no image"}
        page.locator("#attach-file").set_input_files([_picture(40, 30), text, _picture(3000, 10)])  # type: ignore[list-item]
        expect(page.locator("#status")).to_contain_text("a.txt is not an image")
        expect(attached).to_have_count(2)
        page.get_by_role("button", name="Remove image 1").click()
        expect(attached).to_have_count(1)
        expect(page.get_by_role("button", name="Attach images")).to_be_focused()
        send(page, "What is this?")
        wait_for_end(page)
        expect(attached).to_have_count(0)
        shown = page.locator("article.user img")
        expect(shown).to_have_count(1)
        assert shown.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [1024, 3]
        (sent,) = images.urls
        assert sent.startswith("data:image/jpeg;base64,")
        page.reload()
        expect(shown).to_have_count(1)
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Your message").fill("And now?")
        page.keyboard.press("Enter")
        wait_for_end(page)
        assert images.urls == [sent, sent]


def test_a_model_without_images_offers_none(opened: Browser) -> None:
    with scripted_server("one") as (url, _), playground(opened, url) as page:
        expect(page.locator("#attach")).to_be_hidden()
