"""Tests of pagemill.render.chat_template."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pagemill.render import chat_template
from pagemill.render.chat_template import ChatTemplate
from pagemill.render.errors import RenderError

HI = [{"role": "user", "content": "hi"}]


def _render(source: str, messages: Any = None, **variables: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(
        HI if messages is None else messages, None, True, variables
    )


def test_variables_and_helpers() -> None:
    assert _render("{{ bos_token }}{{ messages[0].content }}{{ x }}", x=1) == "<s>hi1"
    assert _render("{{ add_generation_prompt }} {{ tools is none }}") == "True True"
    assert _render("{{ {'a': 'ä<'} | tojson }}") == '{"a": "ä<"}'
    assert _render("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"
    assert _render("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    assert (
        _render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "01"
    )
    assert _render("{% generation %}a{{ 1 }}{% endgeneration %}b") == "a1b"
    # Blocks take their line with them, as in Hugging Face's environment.
    assert _render("  {% if true %}\nx\n  {% endif %}\n") == "x\n"


def test_content_parts() -> None:
    parts = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]
    assert _render("{{ messages[0].content }}", parts) == "a\nb"
    looping = (
        "{% for m in messages %}{% for p in m['content'] %}[{{ p.text }}]{% endfor %}{% endfor %}"
    )
    assert _render(looping, parts) == "[a][b]"
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(RenderError, match="'image_url' cannot be given"):
        _render("{{ messages[0].content }}", image)


def test_tool_call_arguments_are_parsed() -> None:
    def message(arguments: str) -> list[dict[str, Any]]:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]

    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    assert _render(source, message('{"a":1}')) == '{"a": 1}'
    assert _render(source, message("{a")) == '"{a"'


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('Only user roles.') }}", "Only user roles."),
        ("{{ messages[0].nothing.more }}", "no attribute 'nothing'"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ ''.__class__.__mro__ }}", "failed"),
        ("{{ messages.append(1) }}", "failed"),
        ("{{ messages.__init__.__globals__ }}", "failed"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "failed"),
        ("{{ 'x' * 10 ** 12 }}", "beyond bounds"),
        ("{{ 10 ** 10 ** 10 ** 10 }}", "beyond bounds"),
        ("{% include 'x' %}", "failed"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "failed"),
    ],
)
def test_failures_are_refusals(source: str, words: str) -> None:
    with pytest.raises(RenderError, match=words):
        _render(source)


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ x", "{% endfor %}", "{% nothing %}", "(" * 10 + "{{ " + "(" * 5000]
)
def test_what_is_no_template_is_refused(source: str) -> None:
    with pytest.raises(RenderError, match="not valid Jinja|too deep"):
        ChatTemplate(source, {})


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RenderError, match="characters"):
        ChatTemplate("x" * (chat_template.MAX_TEMPLATE_CHARS + 1), {})
    monkeypatch.setattr(chat_template, "MAX_OUTPUT_CHARS", 1000)
    with pytest.raises(RenderError, match="longer than 1000"):
        _render("{% for i in range(2000) %}x{% endfor %}")
    monkeypatch.setattr(chat_template, "MAX_RENDER_SECONDS", 0.05)
    begin = time.monotonic()
    with pytest.raises(RenderError, match="ran longer than 0.05 s"):
        _render(
            "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% for c in r %}"
            "{% endfor %}{% endfor %}{% endfor %}"
        )
    assert time.monotonic() - begin < 5  # generous: the machine may be busy


def test_reserved_variables() -> None:
    with pytest.raises(RenderError, match="may not set messages"):
        ChatTemplate("x", {}).render(HI, None, True, {"messages": []})


def test_the_callers_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    _render("{{ messages[0].content }}", messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


def test_threads_do_not_disturb_each_other() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }},{% endfor %}", {})

    def one(n: int) -> bool:
        messages = [{"role": "user", "content": f"{n}-{i}"} for i in range(50)]
        return template.render(messages, None, True, {}) == "".join(f"{n}-{i}," for i in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))
