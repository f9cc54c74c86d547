"""The playground in a browser, over a model that writes what a test says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from hashlib import sha256

import pytest
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.access.keys import ApiKey
from playwright.sync_api import Browser, Page, expect

from tests.playground.pages import (
    BROWSER,
    BROWSER_REASON,
    browser,
    open_page,
    playground,
    send,
    wait_for_end,
)
from tests.playground.scripted_server import scripted_server

pytestmark = pytest.mark.skipif(BROWSER is None, reason=BROWSER_REASON)

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'

# Notes in the page whether a part of an answer was shown before the rest.
_WATCH = """() => {
  window.sawPart = false;
  new MutationObserver(() => {
    const part = document.querySelector("article.assistant[aria-busy=true] strong");
    if (part && !document.querySelector("pre")) window.sawPart = true;
  }).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


def answer(page: Page, at: int = -1):
    return page.locator("article.assistant").nth(at)


def test_an_answer_streams_and_has_figures(opened: Browser) -> None:
    output = "**Bold** and <b>raw</b>:\n\n1. one\n2. two\n\n```python\nprint(1)\n```\n"
    with scripted_server(output, step_s=0.02) as (url, _), playground(opened, url) as page:
        page.evaluate(_WATCH)
        send(page, "Write.")
        expect(answer(page).locator("pre")).to_have_count(1)
        wait_for_end(page)
        assert page.evaluate("window.sawPart")
        expect(answer(page)).to_have_attribute("aria-busy", "false")
        text = answer(page).locator(".text")
        expect(text.locator("p").first).to_have_text("Bold and <b>raw</b>:")
        expect(text.locator("ol > li")).to_have_text(["one", "two"])
        expect(text.locator("pre")).to_have_text("print(1)")
        assert text.locator("b").count() == 0
        figures = answer(page).locator(".figures").last
        expect(figures).to_contain_text(f"{len(output) + 1} tokens")
        expect(figures).to_contain_text("tokens/s")
        expect(page.locator("#announcements")).to_contain_text("Bold")
        expect(page.get_by_label("Message", exact=True)).to_be_focused()
        expect(page.locator("#figure-running")).to_have_text("0")


def test_stop_keeps_what_has_arrived(opened: Browser) -> None:
    with (
        scripted_server("on and " * 200, step_s=0.02) as (url, server),
        playground(opened, url) as page,
    ):
        for stop in (
            lambda: page.keyboard.press("Escape"),
            page.get_by_role("button", name="Stop").click,
        ):
            send(page, "Write.")
            expect(answer(page).locator(".text")).to_contain_text("on and on")
            stop()
            wait_for_end(page)
            expect(answer(page).locator(".figures").last).to_contain_text("Stopped.")
            assert "on and on" in answer(page).locator(".text").inner_text()
            deadline = time.monotonic() + 60
            while server.async_engine.num_live:
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_a_tool_call_is_answered_by_hand(opened: Browser) -> None:
    first = f"<think>\nI look it up.\n</think>\n\nLet me see.\n{CALL % 'Paris'}\n{CALL % 'Oslo'}"
    with (
        scripted_server(first, "It is sunny.") as (url, server),
        playground(opened, url) as page,
    ):
        page.get_by_role("button", name="Insert an example").click()
        send(page, "How is the weather?")
        wait_for_end(page)
        expect(answer(page).locator(".call-name")).to_have_text(["get_weather", "get_weather"])
        expect(answer(page).locator(".call pre").first).to_contain_text('"city": "Paris"')
        expect(answer(page).locator("details")).not_to_have_attribute("open", "")
        expect(page.get_by_label("Result of get_weather").first).to_be_focused()
        for text in ("sun", "rain"):  # Enter goes to the next result, and sends the last one
            page.keyboard.type(text)
            page.keyboard.press("Enter")
        expect(answer(page, 1).locator(".text")).to_have_text("It is sunny.")
        reasoning = answer(page, 0).locator("details")
        reasoning.locator("summary").click()
        expect(reasoning.get_by_text("I look it up.")).to_be_visible()
        expect(page.get_by_role("button", name="Send results")).to_have_count(0)
        messages = server.renderer.rendered[-1].messages
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
        assert [message["content"] for message in messages[2:]] == ["sun", "rain"]
        ids = [call["id"] for call in messages[1]["tool_calls"]]
        assert ids == [message["tool_call_id"] for message in messages[2:]]
        tools = server.renderer.rendered[-1].tools
        assert tools is not None and tools[0]["function"]["name"] == "get_weather"


def test_regenerating_and_editing_add_versions(opened: Browser) -> None:
    with (
        scripted_server("one", "two", "three") as (url, server),
        playground(opened, url) as page,
    ):
        send(page, "First")
        wait_for_end(page)
        page.get_by_role("button", name="Regenerate").click()
        expect(answer(page).locator(".text")).to_have_text("two")
        expect(answer(page).locator(".branches")).to_contain_text("2 / 2")
        expect(page.get_by_label("Message", exact=True)).to_be_focused()
        page.get_by_role("button", name="Previous version").click()
        expect(answer(page).locator(".text")).to_have_text("one")
        expect(page.get_by_role("button", name="Next version")).to_be_focused()

        page.get_by_role("button", name="Edit").click()
        expect(page.get_by_label("Your message")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Edit")).to_be_focused()
        page.keyboard.press("Enter")
        page.get_by_label("Your message").fill("Second")
        page.keyboard.press("Enter")
        expect(answer(page).locator(".text")).to_have_text("three")
        assert [m["content"] for m in server.renderer.rendered[-1].messages] == ["Second"]
        expect(page.locator("article.user .branches")).to_contain_text("2 / 2")
        page.get_by_role("button", name="Previous version").click()
        expect(answer(page).locator(".text")).to_have_text("one")

        page.get_by_role("button", name="New chat").click()
        expect(page.locator("article")).to_have_count(0)


def test_settings_are_sent(opened: Browser) -> None:
    with scripted_server("abcdef") as (url, server), playground(opened, url) as page:
        sent: list[dict[str, object]] = []
        page.on("request", lambda r: sent.append(r.post_data_json) if r.method == "POST" else None)
        send(page, "a")
        wait_for_end(page)
        assert set(sent[-1]) == {"model", "messages", "stream", "stream_options"}
        page.get_by_label("System prompt").fill("Be brief.")
        for label, value in (("Temperature", "0.5"), ("Top p", "0.9"), ("Seed", "7")):
            page.get_by_label(label).fill(value)
        page.get_by_label("Max tokens").fill("3")
        page.get_by_label("Stop strings, one a line").fill("x\ny")
        page.get_by_label("Response format").select_option("json_object")
        send(page, "b")
        wait_for_end(page)
        expected = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 3}
        expected |= {"stop": ["x", "y"], "response_format": {"type": "json_object"}}
        assert expected.items() <= sent[-1].items()
        roles = [m["role"] for m in server.renderer.rendered[-1].messages]
        assert roles == ["system", "user", "assistant", "user"]
        page.get_by_role("button", name="Insert an example").click()
        page.get_by_label("Tool choice").select_option("get_weather")
        page.reload()
        expect(page.get_by_label("Tool choice")).to_have_value("named get_weather")
        expect(page.get_by_label("System prompt")).to_have_value("Be brief.")
        expect(page.get_by_label("Model", exact=True)).to_have_value("fake")
        page.get_by_role("button", name="Reset settings").click()
        expect(page.get_by_label("System prompt")).to_have_value("")
        expect(page.get_by_label("Model", exact=True)).to_have_value("fake")


def test_a_wrong_setting_is_not_sent(opened: Browser) -> None:
    with scripted_server("a") as (url, _), playground(opened, url) as page:
        page.get_by_label("Functions, as a JSON list").fill("[{]")
        send(page, "Hello")
        expect(page.locator("#tools-error")).to_contain_text("This is not JSON")
        expect(page.get_by_label("Functions, as a JSON list")).to_be_focused()
        expect(page.get_by_label("Message", exact=True)).to_have_value("Hello")
        expect(page.locator("article")).to_have_count(0)


def test_errors_are_shown_as_the_server_sends_them(opened: Browser) -> None:
    with (
        scripted_server("abcdef", fail_at=3) as (url, _),
        open_page(opened, url, expected="400") as page,
    ):
        send(page, "Fail.")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The runner failed this request.")
        expect(alert).to_contain_text("status 500")
        expect(alert).to_contain_text("request ")
        expect(answer(page).locator(".text")).to_have_text("abc")
        page.get_by_label("Max tokens").fill("100000")
        send(page, "Too much.")
        expect(page.get_by_role("alert").last).to_contain_text("status 400")


def test_tokens_show_their_probability(opened: Browser) -> None:
    with scripted_server("a b\nc") as (url, _), playground(opened, url) as page:
        page.get_by_label("Token probabilities").check()
        send(page, "Hello")
        wait_for_end(page)
        tokens = answer(page).locator(".token")
        expect(tokens.first).to_have_text("a")
        tokens.first.hover()
        details = answer(page).locator(".token-details")
        expect(details.locator(".chosen")).to_contain_text("%")
        page.mouse.move(0, 0)
        expect(details).to_be_hidden()
        tokens.first.focus()
        page.keyboard.press("ArrowRight")
        expect(tokens.nth(1)).to_be_focused()
        expect(details.locator(".chosen th")).to_have_text("␣")
        expect(tokens.nth(1)).to_have_accessible_description(re.compile("%"))
        page.keyboard.press("Escape")
        expect(details).to_be_hidden()
        page.get_by_role("button", name="Tokens").click()
        expect(answer(page).locator(".text")).to_have_text("a b c")


def test_a_key_is_asked_for_and_stays_in_the_tab(opened: Browser) -> None:
    scopes = frozenset({Scope.INFERENCE})
    keys = [ApiKey(sha256(b"sesame").digest(), Caller("web", scopes=scopes))]
    with (
        scripted_server("Hello!", keys=keys) as (url, _),
        open_page(opened, url, expected="40") as page,
    ):
        for key in ("wrong", "sesame"):
            expect(page.get_by_role("dialog")).to_be_visible()
            page.get_by_label("Key", exact=True).fill(key)
            page.keyboard.press("Enter")
            if key == "wrong":
                expect(page.get_by_role("dialog")).to_contain_text("refused this key")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_label("Model", exact=True)).to_have_value("fake")
        send(page, "Hi")
        expect(answer(page).locator(".text")).to_have_text("Hello!")
        assert "sesame" not in page.url
        wait_for_end(page)
        kept = page.evaluate("JSON.stringify(localStorage)")
        assert "Hello!" in kept and "sesame" not in kept
        expect(page.locator("#figures")).to_be_hidden()  # the key lacks the scope metrics


def test_a_narrow_window(opened: Browser) -> None:
    size = {"width": 360, "height": 640}
    with scripted_server("x" * 500) as (url, _), playground(opened, url, viewport=size) as page:
        expect(page.get_by_label("Temperature")).to_be_hidden()
        toggle = page.get_by_role("button", name="Settings", exact=True)
        toggle.click()
        expect(page.get_by_label("Temperature")).to_be_visible()
        expect(toggle).to_have_attribute("aria-expanded", "true")
        toggle.click()
        send(page, "y" * 500)
        wait_for_end(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360


def test_a_chat_continues_after_a_stopped_call(opened: Browser) -> None:
    """Calls of an answer that did not end are not sent."""
    output = f"{CALL % 'Paris'}\n{'and on ' * 200}"
    with (
        scripted_server(output, "Hello.", step_s=0.02) as (url, server),
        playground(opened, url) as page,
    ):
        page.get_by_role("button", name="Insert an example").click()
        send(page, "First")
        expect(answer(page).locator(".call-name")).to_have_text("get_weather")
        page.keyboard.press("Escape")
        wait_for_end(page)
        expect(page.get_by_label("Result of get_weather")).to_be_hidden()
        send(page, "Second")
        expect(answer(page).locator(".text")).to_have_text("Hello.")
        _, stopped, _ = server.renderer.rendered[-1].messages
        assert "tool_calls" not in stopped


def test_an_edit_waits_for_the_answer_that_arrives(opened: Browser) -> None:
    with (
        scripted_server("one", "on and " * 200, "three", step_s=0.02) as (url, _),
        playground(opened, url) as page,
    ):
        send(page, "First")
        wait_for_end(page)
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Your message").fill("Third")
        send(page, "Second")
        page.get_by_label("Your message").press("Enter")
        expect(page.get_by_label("Your message")).to_have_value("Third")
        page.get_by_role("button", name="Stop").click()
        wait_for_end(page)
        page.get_by_label("Your message").press("Enter")
        expect(answer(page).locator(".text")).to_have_text("three")
        expect(page.locator("article")).to_have_count(2)
