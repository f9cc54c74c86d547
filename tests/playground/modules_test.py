"""Modules of the playground by themselves, imported in a page."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.playground.pages import BROWSER, BROWSER_REASON, browser, playground
from tests.playground.scripted_server import scripted_server

pytestmark = pytest.mark.skipif(BROWSER is None, reason=BROWSER_REASON)

_SHOW = """async (texts) => {
  const { showMarkdown } = await import("/playground/markdown.js");
  const target = document.createElement("div");
  for (const text of texts) showMarkdown(target, text);
  return target.innerHTML;
}"""
_READ = """async (chunks) => {
  const { eventData } = await import("/playground/event_stream.js");
  const body = new ReadableStream({
    start(controller) {
      for (const bytes of chunks) controller.enqueue(new Uint8Array(bytes));
      controller.close();
    },
  });
  const found = [];
  for await (const data of eventData(body)) found.push(data);
  return found;
}"""
_PARSE = """async (text) => {
  const { parseTools } = await import("/playground/tools.js");
  try { return parseTools(text); } catch (error) { return error.message; }
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with (
        scripted_server("a") as (url, _),
        browser() as opened,
        playground(opened, url) as found,
    ):
        yield found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\n\nc", "<p>a\nb</p><p>c</p>"),
        ("# a\n#### b", "<h3>a</h3><h6>b</h6>"),
        ("**a *b* c** d", "<p><strong>a <em>b</em> c</strong> d</p>"),
        ("2 * 3 * 4, a_b_c", "<p>2 * 3 * 4, a_b_c</p>"),
        ("`**a**` ``b`c``", "<p><code>**a**</code> <code>b`c</code></p>"),
        ("- a\n  - b\n    more\n- c", "<ul><li>a<ul><li>b\nmore</li></ul></li><li>c</li></ul>"),
        ("1. a\n\n2. b\n\nc", '<ol start="1"><li>a</li><li>b</li></ol><p>c</p>'),
        ("> a\n> b\nc", "<blockquote>a\nb</blockquote><p>c</p>"),
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
        ("[a](javascript:b) ![c](d)", "<p>[a](javascript:b) ![c](d)</p>"),
        ("", ""),
    ],
)
def test_markdown(page: Page, text: str, expected: str) -> None:
    whole = page.evaluate(_SHOW, [text])
    assert whole == expected
    in_parts = page.evaluate(_SHOW, [text[:at] for at in range(len(text) + 1)])
    assert in_parts == expected


def test_code_blocks(page: Page) -> None:
    found = page.evaluate(_SHOW, ["a\n```python\nif **x**:\n\n    <b>\n```\nb"])
    assert "<code>if **x**:\n\n    &lt;b&gt;</code>" in found
    assert found.startswith("<p>a</p>") and found.endswith("<p>b</p>")
    assert "<code>unfinished</code>" in page.evaluate(_SHOW, ["```\nunfinished"])


@pytest.mark.parametrize("part", ["*a", "**a ", "`a``b", "> ", "- ", "  " * 50 + "- a\n", "```\n"])
def test_no_text_takes_long(page: Page, part: str) -> None:
    began = time.monotonic()
    paragraph = (part * 10_000)[:9_990]  # longer ones stay text
    page.evaluate(_SHOW, ["\n\n".join([paragraph] * 5)])
    assert time.monotonic() - began < 10  # a second at most; minutes if it were exponential


def test_events_are_read_however_they_are_cut(page: Page) -> None:
    text = ": comment\r\n\r\ndata: é\n\ndata:b\r\rid: 1\r\ndata: c\r\ndata: d\r\n\r\ndata: lost"
    sent = text.encode()
    for size in (1, 2, 3, len(sent)):
        chunks = [list(sent[at : at + size]) for at in range(0, len(sent), size)]
        assert page.evaluate(_READ, chunks) == ["é", "b", "c\nd"]


def test_tools(page: Page) -> None:
    wrapped = [{"type": "function", "function": {"name": "f"}}]
    assert page.evaluate(_PARSE, '[{"name": "f"}]') == wrapped
    assert page.evaluate(_PARSE, '[{"type": "function", "function": {"name": "f"}}]') == wrapped
    assert page.evaluate(_PARSE, " ") == []
    for text, message in (
        ("{}", "list"),
        ("[{]", "not JSON"),
        ("[{}]", "Tool 1"),
        ("[null]", "Tool 1"),
    ):
        assert message in page.evaluate(_PARSE, text)
