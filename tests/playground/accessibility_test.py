"""What a keyboard and a screen reader need of the playground, and contrasts of its colours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

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

OUTPUT = (
    "<think>\nHm.\n</think>\n\n# A `b`\n\n> c\n\n```py\nd\n```\n"
    "| e |\n|-|\n| [f](https://example.org) |\n\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
)
MIN_CONTRAST = 4.5  # level AA of WCAG 2.2, for text

_NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea")]
  .filter((one) => !one.labels?.length && !one.ariaLabel && !one.textContent.trim())
  .map((one) => one.outerHTML)"""

# Text with less contrast than the argument. The background of an element is the mix of those of its
# ancestors. Disabled controls are exempt.
_FAINT = """(least) => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const behind = (one) => {
    if (one === null) return [255, 255, 255];
    const [r, g, b, alpha = 1] = numbers(getComputedStyle(one).backgroundColor);
    if (alpha === 1) return [r, g, b];
    const below = behind(one.parentElement);
    return [r, g, b].map((value, at) => alpha * value + (1 - alpha) * below[at]);
  };
  const luminance = (color) => {
    const linear = color.slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const found = [];
  for (const one of document.body.querySelectorAll("*")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.checkVisibility() || one.disabled) continue;
    const pair = [numbers(getComputedStyle(one).color), behind(one)].map(luminance);
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < least) found.push(`${contrast.toFixed(1)}: ${one.outerHTML.slice(0, 80)}`);
  }
  return found;
}"""


@pytest.fixture(scope="module", params=["light", "dark"])
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page with one of everything that has text."""
    with (
        scripted_server(OUTPUT) as (url, _),
        browser() as opened,
        playground(opened, url, color_scheme=request.param) as found,
    ):
        found.get_by_label("Token probabilities").check()
        found.get_by_role("button", name="Insert an example").click()
        send(found, "Hello")
        wait_for_end(found)
        yield found


def test_controls_have_names(page: Page) -> None:
    assert page.evaluate(_NAMELESS) == []


def test_text_has_contrast(page: Page) -> None:
    for name in ("Tokens", "Tokens"):  # the text, then the tokens
        assert page.evaluate(_FAINT, MIN_CONTRAST) == []
        page.get_by_role("button", name=name).click()
    page.locator(".token").first.hover()
    assert page.evaluate(_FAINT, MIN_CONTRAST) == []
    assert len(page.evaluate(_FAINT, 22)) > 20  # no colour has as much


def test_tab_reaches_the_parts_in_order(page: Page) -> None:
    page.get_by_text("Skip to the message field").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.locator("article.assistant").get_by_role("button", name="Tokens")).to_be_focused()


def test_the_dialog_of_chats(page: Page) -> None:
    opener = page.get_by_role("button", name="Chats")
    opener.click()
    dialog = page.get_by_role("dialog", name="Chats")
    expect(dialog.get_by_role("button", name="Hello", exact=True)).to_be_focused()
    expect(dialog.get_by_role("button", name="Delete: Hello")).to_be_visible()
    dialog.get_by_role("button", name="Delete all").click()
    assert page.evaluate(_NAMELESS) == []
    assert page.evaluate(_FAINT, MIN_CONTRAST) == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()


def test_headings_say_who_wrote_what(page: Page) -> None:
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    expect(page.get_by_role("article", name="fake")).to_have_count(1)
    expect(page.locator("#announcements")).to_have_text("The model calls get_weather.")
