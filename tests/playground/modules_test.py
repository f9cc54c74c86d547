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


_SLOW = [
    *("*a", "**a ", "`a``b", "> ", "- ", "  " * 50 + "- a\n", "```\n"),
    *("[a](", "[", "[a](b(", "https://", "a|", "|-\n", "a|b\n-|-\n", "\\|"),
]


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


LINK = '<a href="{0}" target="_blank" rel="noopener noreferrer nofollow" title="{0}">{1}</a>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a *b*](https://x.org/c_(d)?e#f)", ("https://x.org/c_(d)?e#f", "a <em>b</em>")),
        ("[m](mailto:a@b.org)", ("mailto:a@b.org", "m")),
        ("http://x.org/a", ("http://x.org/a", "http://x.org/a")),
        ("[http://bank.org](http://x.org/)", ("http://x.org/", "http://bank.org")),
        ("[**<b>**](HTTPS://X.org)", ("https://x.org/", "<strong>&lt;b&gt;</strong>")),
    ],
)
def test_links(page: Page, text: str, expected: tuple[str, str]) -> None:
    assert page.evaluate(_SHOW, [text]) == f"<p>{LINK.format(*expected)}</p>"


def test_an_address_ends_before_the_sentence_does(page: Page) -> None:
    link = LINK.format("https://x.org/a", "https://x.org/a")
    assert page.evaluate(_SHOW, ["See (https://x.org/a)."]) == f"<p>See ({link}).</p>"
    assert page.evaluate(_SHOW, ["See https://x.org/a, b"]) == f"<p>See {link}, b</p>"
    assert "<a" not in page.evaluate(_SHOW, ["`https://x.org/a`"])


@pytest.mark.parametrize(
    "text",
    [
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](java\tscript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "[a](vbscript:x)",
        "[a](file:///etc/passwd)",
        "[a](blob:http://x/y)",
        "[a](/v1/models)",
        "[a](//x.org)",
        "[a](x.org)",
        "[a]( https://x.org)",
        "![a](https://x.org/b.png)",
        "<a href=https://x.org>",
        '<img src="data:x" onerror=alert(1)>',
        "<svg/onload=alert(1)>",
        "[a](https://x.org",
        "[a] (b)",
        "| <img src=x onerror=alert(1)> |\n|-|\n| <script>alert(1)</script> |",
    ],
)
def test_what_is_no_safe_link_stays_text(page: Page, text: str) -> None:
    found = page.evaluate(
        """async (text) => {
          const { showMarkdown } = await import("/playground/markdown.js");
          const target = document.createElement("div");
          showMarkdown(target, text);
          const links = [...target.querySelectorAll("a")].map((a) => a.href);
          const tags = [...target.querySelectorAll("*")].map((one) => one.localName);
          const attributes = [...target.querySelectorAll("*")].flatMap((one) =>
            [...one.attributes].map(({ name }) => name));
          return { links, tags, attributes, text: target.textContent };
        }""",
        text,
    )
    assert not {"img", "script", "svg", "iframe"} & set(found["tags"])
    assert not [name for name in found["attributes"] if name.startswith("on")]
    bare = ["https://x.org/", "https://x.org/b.png"]  # addresses in the text itself
    assert all(link in bare for link in found["links"])
    if not text.startswith("|"):
        assert found["text"] == text


def test_tables(page: Page) -> None:
    text = "a | *b*\n-|-:\nc\\|d | e | f\n| g |\n\nh"
    expected = (
        '<div class="table" tabindex="0" role="group" aria-label="Table"><table><thead><tr>'
        '<th>a</th><th class="right"><em>b</em></th></tr></thead><tbody>'
        '<tr><td>c|d</td><td class="right">e</td></tr><tr><td>g</td></tr></tbody></table></div>'
        "<p>h</p>"
    )
    assert page.evaluate(_SHOW, [text]) == expected
    assert page.evaluate(_SHOW, [text[:at] for at in range(len(text) + 1)]) == expected
    centered = page.evaluate(_SHOW, ["text\n| a |\n| :-: |\n| b |\n- c"])
    assert centered.startswith("<p>text</p>") and centered.endswith("<ul><li>c</li></ul>")
    assert '<td class="centered">b</td>' in centered
    for none in ("a | b\nc", "a | b\n-", "a | b\n- | x", "|\n|", "-|-\n"):
        assert "<table" not in page.evaluate(_SHOW, [none])
    wide = f"{'a|' * 101}\n{'-|' * 101}\n"
    assert "<table" not in page.evaluate(_SHOW, [wide])


def test_code_blocks(page: Page) -> None:
    found = page.evaluate(_SHOW, ["a\n```python\nif **x**:\n\n    <b>\n```\nb"])
    assert "<code>if **x**:\n\n    &lt;b&gt;</code>" in found
    assert found.startswith("<p>a</p>") and found.endswith("<p>b</p>")
    assert "<code>unfinished</code>" in page.evaluate(_SHOW, ["```\nunfinished"])


@pytest.mark.parametrize("part", _SLOW)
def test_no_text_takes_long(page: Page, part: str) -> None:
    began = time.monotonic()
    paragraph = (part * 10_000)[:9_990]  # longer ones stay text
    page.evaluate(_SHOW, ["\n\n".join([paragraph] * 5)])
    assert time.monotonic() - began < 60  # a second at most; minutes if it were exponential


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
