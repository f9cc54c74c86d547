"""The page of the HTTP API, in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from playwright.sync_api import Browser, expect

from tests.playground.pages import BROWSER, BROWSER_REASON, browser, open_page
from tests.playground.scripted_server import scripted_server

pytestmark = pytest.mark.skipif(BROWSER is None, reason=BROWSER_REASON)


@pytest.fixture(name="opened", scope="module")
def _opened() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def test_routes_and_their_fields(opened: Browser) -> None:
    with scripted_server("Hi") as (url, _), open_page(opened, url, "/docs") as page:
        routes = page.locator("#routes > details")
        expect(page.get_by_role("status")).to_contain_text(" routes")
        assert routes.count() > 20
        page.get_by_label("Find a route or a field").fill("top_logprobs")
        # Chats, a batch of them, responses and their count of tokens.
        expect(page.locator("#routes > details:visible")).to_have_count(6)
        page.get_by_label("Find a route or a field").fill("/v1/completions")
        completions = page.locator("#routes > details:visible").first
        completions.locator("summary").first.press("Enter")
        temperature = completions.get_by_role("row", name="temperature").first
        expect(temperature).to_contain_text("number or null; at least 0; at most 100")
        expect(temperature).to_contain_text("Randomness")
        expect(completions.get_by_role("row", name="prompt any value")).to_be_visible()
        # The type of a field is another table.
        options = completions.get_by_role("row", name="stream_options")
        options.locator("summary").press("Enter")
        expect(options.get_by_role("row", name="include_usage")).to_contain_text("boolean")
        expect(completions).to_contain_text("An event of a stream")
        expect(completions).to_contain_text("429 RateLimitError")


def test_a_key_is_asked_for(opened: Browser) -> None:
    keys = [ApiKey.of("secret", Caller("web"))]
    with (
        scripted_server("Hi", keys=keys) as (url, _),
        open_page(opened, url, "/docs", expected="401") as page,
    ):
        page.get_by_label("Key", exact=True).fill("secret")
        page.get_by_role("button", name="Use key").click()
        expect(page.get_by_role("status").first).to_contain_text(" routes")
        assert page.locator("#routes > details").count() > 20
