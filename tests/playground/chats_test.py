"""Chats that the browser keeps, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

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

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'

# Writes records of this many characters, with rising times; returns the titles that are kept.
_FILL = """async ([count, chars]) => {
  const { ChatStore } = await import("/playground/chat_store.js");
  const store = new ChatStore();
  const written = [];
  for (let at = 0; at < count; at += 1) {
    const changed = new Date(Date.UTC(2026, 0, 1) + 1000 * at).toISOString();
    written.push(store.write(`c${at}`, { title: `t${at}`, changed, text: "x".repeat(chars) }));
  }
  return { written, titles: store.list().map(({ title }) => title) };
}"""
_FULL = """() => {
  const { setItem } = Storage.prototype;
  Storage.prototype.setItem = function (key, value) {
    if (key.startsWith("pagemill.chat.")) throw new DOMException("full", "QuotaExceededError");
    setItem.call(this, key, value);
  };
}"""
_READ = """async (text) => {
  const { chatOf, parseRecord } = await import("/playground/chat_record.js");
  try {
    const { conversation } = chatOf(parseRecord(text));
    return String(conversation.path().length);
  } catch (error) {
    return `${error.constructor.name}: ${error.message}`;
  }
}"""


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(opened: Browser) -> Iterator[Page]:
    with scripted_server("a") as (url, _), playground(opened, url) as found:
        yield found


def texts(page: Page) -> list[str]:
    return page.locator("article .text").all_inner_texts()


def chats(page: Page) -> list[str]:
    """Opens the dialog; the titles in it."""
    page.get_by_role("button", name="Chats").click()
    return page.locator("#chats li > :first-child").all_inner_texts()


def test_a_chat_survives_a_reload(opened: Browser) -> None:
    with (
        scripted_server("one", "two", f"<think>\nHm.\n</think>\n\n{CALL}", "end") as (url, server),
        playground(opened, url) as page,
    ):
        page.get_by_label("System prompt").fill("Be brief.")
        page.get_by_role("button", name="Insert an example").click()
        send(page, "First")
        wait_for_end(page)
        page.get_by_role("button", name="Regenerate").click()
        expect(page.locator("article.assistant .text")).to_have_text("two")
        wait_for_end(page)
        page.get_by_role("button", name="Previous version").click()
        page.reload()
        assert texts(page) == ["First", "one"]
        expect(page.locator(".branches")).to_contain_text("1 / 2")
        expect(page.locator("article.assistant .figures").first).to_contain_text("4 tokens")
        send(page, "Second")
        wait_for_end(page)
        page.reload()
        expect(page.locator(".call-name")).to_have_text("get_weather")
        page.get_by_label("Result of get_weather").fill("sun")
        page.get_by_role("button", name="Send results").click()
        expect(page.locator("article.assistant .text").last).to_have_text("end")
        messages = server.renderer.rendered[-1].messages
        roles = ["system", "user", "assistant", "user", "assistant", "tool"]
        assert [message["role"] for message in messages] == roles
        assert messages[-1]["tool_call_id"] == messages[-2]["tool_calls"][0]["id"]


def test_what_arrived_before_a_reload_is_kept(opened: Browser) -> None:
    with (
        scripted_server("on and " * 300, step_s=0.005) as (url, _),
        playground(opened, url) as page,
    ):
        send(page, "Go on.")
        expect(page.locator("article.assistant .text")).to_contain_text("on and on")
        page.reload()
        expect(page.locator("article.assistant .text")).to_contain_text("on and on")
        expect(page.locator("article.assistant .figures").last).to_contain_text("Stopped.")


def test_chats_are_listed_opened_and_deleted(opened: Browser) -> None:
    with scripted_server("one", "two") as (url, _), playground(opened, url) as page:
        assert chats(page) == []
        expect(page.get_by_role("dialog")).to_contain_text("There are none yet.")
        page.get_by_role("button", name="Close").click()
        for text in ("First\nline", "Second"):
            page.get_by_label("System prompt").fill(f"About {text[0]}.")
            send(page, text)
            wait_for_end(page)
            page.get_by_role("button", name="New chat").click()
        assert texts(page) == []
        assert chats(page) == ["Second", "First"]
        page.get_by_role("button", name="First", exact=True).click()
        expect(page.get_by_role("dialog")).to_be_hidden()
        assert texts(page) == ["First\nline", "one"]
        expect(page.get_by_label("System prompt")).to_have_value("About F.")
        chats(page)
        page.get_by_role("button", name="Delete: Second").click()
        expect(page.locator("#chats li")).to_have_count(1)
        page.get_by_role("button", name="Delete all").click()
        expect(page.get_by_role("button", name="Keep")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Delete all")).to_be_focused()
        expect(page.locator("#chats li")).to_have_count(1)
        page.get_by_role("button", name="Delete all").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(page.locator("#chats li")).to_have_count(0)
        page.get_by_role("button", name="Close").click()
        assert texts(page) == []
        assert "pagemill.chat." not in page.evaluate("JSON.stringify(localStorage)")
        page.reload()
        assert texts(page) == []


def test_a_new_tab_begins_a_chat_and_has_the_others(opened: Browser) -> None:
    with scripted_server("one") as (url, _), playground(opened, url) as page:
        page.get_by_label("System prompt").fill("Be brief.")
        send(page, "First")
        wait_for_end(page)
        other = page.context.new_page()
        other.goto(url)
        expect(other.get_by_label("System prompt")).to_have_value("Be brief.")
        assert texts(other) == []
        assert chats(other) == ["First"]


def test_a_chat_is_exported_and_imported(opened: Browser, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    with scripted_server("one & <two>") as (url, _), playground(opened, url) as page:
        page.get_by_label("Temperature").fill("0.5")
        send(page, "First")
        wait_for_end(page)
        chats(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="Export this chat").click()
        assert download.value.suggested_filename == "chat.json"
        download.value.save_as(file)
    record = json.loads(file.read_text())
    assert record["format"] == "pagemill chat" and record["version"] == 1
    assert record["title"] == "First" and record["settings"]["temperature"] == "0.5"
    assert [message["role"] for message in record["messages"]] == ["user", "assistant"]
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "another"}')
    with scripted_server("three") as (url, server), playground(opened, url) as page:
        chats(page)
        page.locator("#chats-file").set_input_files(broken)
        expect(page.get_by_role("dialog")).to_contain_text("not a chat of the playground")
        page.locator("#chats-file").set_input_files(file)
        expect(page.get_by_role("dialog")).to_be_hidden()
        assert texts(page) == ["First", "one & <two>"]
        expect(page.get_by_label("Temperature")).to_have_value("0.5")
        send(page, "Second")
        wait_for_end(page)
        contents = [message["content"] for message in server.renderer.rendered[-1].messages]
        assert contents == ["First", "one & <two>", "Second"]
        assert chats(page) == ["First"]


def test_what_is_kept_is_bounded(opened: Browser) -> None:
    with scripted_server("one") as (url, _), playground(opened, url) as page:
        many = page.evaluate(_FILL, [103, 10])
        assert all(many["written"])
        assert many["titles"] == [f"t{at}" for at in range(102, 2, -1)]
        page.evaluate("localStorage.clear()")
        large = page.evaluate(_FILL, [5, 700_000])
        assert all(large["written"]) and large["titles"] == ["t4", "t3"]
        assert page.evaluate(_FILL, [1, 2_000_001])["written"] == [False]
        assert "t4" in page.evaluate(_FILL, [0, 0])["titles"]


def test_a_chat_that_is_too_large_says_so(opened: Browser) -> None:
    with scripted_server("one") as (url, _), playground(opened, url) as page:
        page.evaluate(_FULL)
        page.get_by_label("Message", exact=True).fill("First")
        page.keyboard.press("Enter")
        wait_for_end(page)
        expect(page.locator("#status")).to_contain_text("no room for this chat")
        assert texts(page) == ["First", "one"]


def _record(*messages: Any) -> str:
    return json.dumps({"format": "pagemill chat", "version": 1, "messages": messages})


_ANSWER = {"model": "m", "reasoning": "", "content": "c", "calls": [], "state": "finished"}
_USER = {"parent": -1, "role": "user", "text": "a"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (_record(), "0"),
        (_record(_USER), "1"),
        (_record(_USER, {"parent": 0, "role": "assistant", "answer": _ANSWER}), "2"),
        ("", "ChatError: This is not a chat"),
        ("[]", "ChatError: This is not a chat"),
        ("null", "ChatError: This is not a chat"),
        ('{"format": "pagemill chat", "version": 2}', "ChatError: This chat is of another version"),
        ('{"format": "pagemill chat", "version": 1}', "ChatError: It has too many"),
        (_record(*[_USER] * 10_001), "ChatError: It has too many"),
        (_record(None), "ChatError: Its messages"),
        (_record(_USER, {**_USER, "parent": 0}), "ChatError: Its messages"),
        (_record({**_USER, "parent": 0}), "ChatError: Its messages"),
        (_record({**_USER, "parent": "length"}), "ChatError: Its messages"),
        (_record({**_USER, "role": "constructor"}), "ChatError: Its messages"),
        (_record({**_USER, "role": "root"}), "ChatError: Its messages"),
        (_record({**_USER, "text": {}}), "ChatError: A message has no text"),
        (_record(_USER, {"parent": 0, "role": "assistant"}), "ChatError: A message has no answer"),
        (
            _record({"parent": -1, "role": "assistant", "answer": {**_ANSWER, "calls": [1]}}),
            "ChatError: A message has no list",
        ),
    ],
)
def test_a_record_is_checked(page: Page, text: str, found: str) -> None:
    assert page.evaluate(_READ, text).startswith(found)
