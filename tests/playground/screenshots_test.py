"""The playground over a real server and model, and the pictures of docs/playground.md.

    PAGEMILL_SCREENSHOTS=docs/images python -m pytest tests/playground/screenshots_test.py

writes the pictures there; without the variable they go to a temporary folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, serve
from tests.playground.pages import (
    BROWSER,
    BROWSER_REASON,
    browser,
    playground,
    send,
    wait_for_end,
)

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason=BROWSER_REASON),
    pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON),
]

SIZE = {"width": 1180, "height": 760}
MAX_PICTURE_BYTES = 200_000
NAME = "SmolLM2-135M-Instruct"


def test_pictures(tmp_path: Path) -> None:
    folder = Path(os.environ.get("PAGEMILL_SCREENSHOTS", tmp_path))
    options = ["--served-model-name", NAME]
    with serve(SMOLLM2, tmp_path, options) as server, browser() as opened:
        for scheme in ("light", "dark"):
            _chat(opened, server.base_url, folder / f"playground_{scheme}.png", scheme)
        _tokens(opened, server.base_url, folder / "playground_tokens.png")
        _tools(opened, server.base_url, folder / "playground_tools.png")
        _chats(opened, server.base_url, folder / "playground_chats.png")
        server.wait_until_idle()
        assert f"playground: {server.base_url}/" in server.log.read_text()
        head = httpx.head(f"{server.base_url}/", timeout=60)
        assert int(head.headers["content-length"]) > 0 and head.content == b""


def _chat(opened: Browser, url: str, picture: Path, scheme: str) -> None:
    with playground(opened, url, viewport=SIZE, color_scheme=scheme) as page:
        _choose_model(page)
        page.get_by_label("Max tokens").fill("200")
        speed = page.locator("#figure-speed")
        expect(speed).to_have_text("0")
        send(page, "Write a Python function that reverses a string.")
        wait_for_end(page)
        expect(speed).not_to_have_text("0")
        figures = page.locator("article.assistant .figures").last
        expect(figures).to_have_text(re.compile(r"\d+ tokens · first after .* tokens/s"))
        assert len(page.locator("article.assistant .text").inner_text()) > 40
        _take(page, picture)


def _tokens(opened: Browser, url: str, picture: Path) -> None:
    with playground(opened, url, viewport=SIZE) as page:
        _choose_model(page)
        page.get_by_label("Token probabilities").check()
        send(page, "What is the capital of France?")
        wait_for_end(page)
        tokens = page.locator("article.assistant .token")
        expect(tokens.filter(has_text="Paris")).to_have_count(1)
        tokens.filter(has_text="Paris").hover()
        details = page.locator(".token-details")
        expect(details.locator("tr")).to_have_count(5)
        expect(details.locator(".chosen")).to_contain_text("Paris")
        _take(page, picture)


def _tools(opened: Browser, url: str, picture: Path) -> None:
    with playground(opened, url, viewport=SIZE) as page:
        _choose_model(page)
        page.get_by_role("button", name="Insert an example").click()
        page.get_by_label("Tool choice").select_option("get_weather")
        send(page, "What is the weather in Paris?")
        wait_for_end(page)
        expect(page.locator(".call-name")).to_have_text("get_weather")
        page.get_by_label("Result of get_weather").fill('{"sky": "clear", "celsius": 21}')
        page.get_by_label("Tool choice").select_option("auto")
        _take(page, picture)
        page.get_by_label("Max tokens").fill("40")
        page.get_by_role("button", name="Send results").click()
        expect(page.locator("article.assistant")).to_have_count(2)
        wait_for_end(page)
        expect(page.locator("article.assistant").last).to_contain_text("tokens/s")


def _chats(opened: Browser, url: str, picture: Path) -> None:
    with playground(opened, url, viewport=SIZE) as page:
        _choose_model(page)
        page.get_by_label("Max tokens").fill("60")
        for text in ("Name three colours.", "Which rivers flow through Paris?"):
            page.get_by_role("button", name="New chat").click()
            send(page, text)
            wait_for_end(page)
        page.get_by_role("button", name="Chats").click()
        expect(page.locator("#chats li")).to_have_count(2)
        _take(page, picture)


def _choose_model(page: Page) -> None:
    page.get_by_label("Model", exact=True).select_option(NAME)
    page.get_by_label("Temperature").fill("0")


def _take(page: Page, picture: Path) -> None:
    page.screenshot(path=picture)
    assert picture.stat().st_size < MAX_PICTURE_BYTES
