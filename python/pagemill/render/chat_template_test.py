"""Tests of pagemill.render.chat_template and what it does to messages."""

import time
from typing import Any

import pytest

from pagemill.render import chat_template
from pagemill.render.chat_messages import cut_to_continue
from pagemill.render.chat_template import ChatTemplate
from pagemill.render.control_text import ControlText
from pagemill.render.errors import RenderError

HI = [{"role": "user", "content": "hi"}]


def _render(source: str, messages: Any = None, **variables: Any) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"})
    prepared = [template.prepared(message) for message in messages or HI]
    return template.render(prepared, None, True, variables)


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
    refusal = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]
    assert _render("{{ messages[0].content }}", refusal) == "No."
    assert _render(looping, refusal) == "[No.]"
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(RenderError, match="'image_url' cannot be given"):
        _render("{{ messages[0].content }}", image)


QWEN2_VL = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
)
LLAVA = (
    "{% for m in messages %}{{ m['role'] | upper }}: "
    "{% for c in m['content'] | selectattr('type', 'equalto', 'image') %}<image>\n{% endfor %}"
    "{% for c in m['content'] | selectattr('type', 'equalto', 'text') %}{{ c['text'] }}"
    "{% endfor %}{% endfor %}"
)


def test_media_in_contents_that_are_texts() -> None:
    template = ChatTemplate(
        "{% for message in messages %}{{ message.content }};{% endfor %}",
        {},
        media_texts={"image": "<|start|><|pad|>"},
    )
    content = [
        {"type": "text", "text": "a <|pad|>"},
        {"type": "image"},
        {"type": "text", "text": "b"},
    ]
    control = ControlText(["<|start|>", "<|pad|>"])
    message = template.prepared({"role": "user", "content": content})
    prompt = template.render([message], None, True, {}, control)
    assert prompt.replace("\U0010fffd", "") == "a <|pad|>\n<|start|><|pad|>\nb;"
    with_stand_ins = control.with_stand_ins(prompt)
    assert with_stand_ins is not None and with_stand_ins.count("<|pad|>") == 1
    with pytest.raises(RenderError, match="'video' cannot be given to this model"):
        template.prepared({"role": "user", "content": [{"type": "video"}]})


def test_images_are_parts_without_their_urls() -> None:
    parts = ["a", {"type": "image"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    vision = "<|vision_start|><|image_pad|><|vision_end|>"
    assert _render(QWEN2_VL, messages) == f"<|im_start|>user\na{vision}b<|im_end|>\n"
    assert _render(LLAVA, messages) == "USER: <image>\nab"
    with pytest.raises(RenderError, match="'image' cannot be given to this model; it takes text"):
        _render("{{ messages[0].content }}", messages)


@pytest.mark.parametrize("turn", [{}, {"content": None}])
def test_a_turn_without_content(turn: dict[str, Any]) -> None:
    messages = [{"role": "assistant", **turn, "tool_calls": [{"id": "1"}], "audio": None}]
    assert _render("{{ '<' + messages[0].content + '>' }}", messages) == "<>"
    # DeepSeek's templates know a call by its null content.
    for test in ("m['content'] is none", "m.content is not none", "m.content == none"):
        source = "{% for m in messages %}{{ " + test + " }}{{ m.content }}{% endfor %}"
        assert _render(source, messages).endswith("None")
    # Fields that an answer has, and a template does not expect to be null.
    source = "{# of tools #}{{ messages[0] | list | join(' ') }}"
    assert _render(source, messages) == "role tool_calls content"


def test_roles_are_those_of_the_contract_and_of_the_template() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'ipython' or m['role'] in ['critic', 'tool'] %}"
        "{% endif %}{{ m.role }} {% endfor %}"
    )
    roles = ["system", "developer", "user", "assistant", "tool", "ipython", "critic"]
    messages = [{"role": role, "content": ""} for role in roles]
    assert _render(source, messages).split() == roles
    with pytest.raises(RenderError, match="unknown role 'admin'; .* assistant, critic, developer"):
        _render(source, [{"role": "admin", "content": ""}])
    with pytest.raises(RenderError, match="unknown role 'role'"):
        _render(source, [{"role": "role", "content": ""}])


def test_continuing_a_message() -> None:
    assert cut_to_continue("a: It is <end>", " It is ") == "a: It is "
    assert cut_to_continue("a:It is<end>", " It is ") == "a:It is"
    with pytest.raises(RenderError, match="changes the last message"):
        cut_to_continue("a: IT IS", "It is")
    for nothing in (" ", "", None, []):
        with pytest.raises(RenderError, match="no text to continue"):
            cut_to_continue("a", nothing)


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


def test_the_prompt_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_OUTPUT_CHARS", 1000)
    with pytest.raises(RenderError, match="longer than 1000"):
        _render("{% for i in range(2000) %}x{% endfor %}")


def test_reserved_variables() -> None:
    template = ChatTemplate("{{ raise_exception('x') }}{{ messages }}", {})
    for name in ("messages", "tools", "add_generation_prompt", "raise_exception", "range"):
        with pytest.raises(RenderError, match=f"may not set {name}"):
            template.split_variables({name: []})


def test_variables_that_the_template_does_not_read_are_dropped() -> None:
    source = "{% set own = 1 %}{% if enable_thinking is defined %}{{ own }}{% endif %}"
    template = ChatTemplate(source, {})
    given = {"enable_thinking": False, "own": 2, "other": 3}
    assert template.split_variables(given) == ({"enable_thinking": False}, ["other", "own"])


@pytest.mark.parametrize(
    "source",
    [
        "{% if not x is defined %}{% set x = 1 %}{% endif %}{{ x }}",
        "{% set x = x | default(1) %}{{ x }}",
        "{% for m in messages %}{% if m.role and x %}{{ x }}{% endif %}{% endfor %}",
        "{% macro f() %}{{ x }}{% endmacro %}{{ f() }}",
        "{% set n = namespace(y=x) %}{{ n.y }}",
    ],
)
def test_variables_are_found_wherever_they_are_read(source: str) -> None:
    template = ChatTemplate(source, {})
    read, ignored = template.split_variables({"x": 5})
    assert (template.render(HI, None, True, read), ignored) == ("5", [])


def test_documents() -> None:
    documents = {"documents": [{"title": "T", "text": "t"}]}
    template = ChatTemplate("{% for d in documents %}{{ d.title }}{% endfor %}", {})
    read, ignored = template.split_variables(documents)
    assert (template.render(HI, None, True, read), ignored) == ("T", [])
    plain = ChatTemplate("x", {})
    with pytest.raises(RenderError, match="takes no documents") as refused:
        plain.split_variables(documents)
    assert refused.value.param == "documents"
    assert plain.split_variables({"documents": None}) == ({}, [])


@pytest.mark.parametrize(
    ("loop", "takes_parts"),
    [
        ("{% for p in m.content | selectattr('text') %}", True),
        ("{% set parts = m['content'] %}{% for p in parts %}", True),
        ("{% set parts = m.calls %}{% for p in parts %}", False),
    ],
)
def test_the_content_format_is_found_or_given(loop: str, takes_parts: bool) -> None:
    parts = [{"type": "text", "text": "a"}]
    source = "{% set m = messages[0] %}" + loop + "{% endfor %}"
    message = {"role": "user", "content": parts}

    def content(content_format: str) -> Any:
        return ChatTemplate(source, {}, content_format).prepared(message)["content"]

    assert content("auto") == (parts if takes_parts else "a")
    assert content("string") == "a"
    assert content("openai") == parts


def test_the_callers_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    _render("{{ messages[0].content }}", messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
