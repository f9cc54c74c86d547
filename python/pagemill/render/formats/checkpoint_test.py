"""Formats that differ between checkpoints: suffixes of tags, and those that one describes itself.

The oracle of `response_template` is transformers', for whole outputs that are well formed.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from transformers.utils.chat_parsing import parse_response

from pagemill.render.errors import RenderError
from pagemill.render.events import CallEnd, Event, Message, Piece
from pagemill.render.formats.anchor_patterns import End, Space, Words, anchors
from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.element_formats import hunyuan_v3, hunyuan_v4
from pagemill.render.formats.format import ANSWER, REASONING
from pagemill.render.formats.reasoning_formats import THINK, hunyuan
from pagemill.render.formats.response_template import of_checkpoint
from pagemill.render.formats.table import choose_formats, marker_ids
from pagemill.render.output_machine import FormatNames, Formats
from pagemill.render.output_parser import OutputParser, ParserOptions

THINKING = {"open": "<think>\n", "close": "</think>"}
CONTENT = {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)"}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
TEMPLATES: dict[str, dict[str, Any]] = {
    "json": {
        "thinking": THINKING,
        "content": CONTENT,
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": ["</tool_call>", "</tool_calls>"],
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
    },
    "list": {
        "reasoning_content": {"open": "[THINK]", "close": "[/THINK]"},
        "content": {"close": "</s>"},
        "tool_calls": {
            "open": "[TOOL_CALLS]",
            "close_pattern": r"</s>|$",
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "{tool}", "arguments": "{parameters}"},
            },
            "transform_each": True,
        },
    },
    "fields": {
        "content": {"close": "<|end|>"},
        "tool_calls": {
            "open": "<|call|>",
            "close": "<|end|>",
            "repeats": True,
            "content": "json",
            "transform": {"function": {"name": "{content.tool}", "arguments": "{content.args}"}},
        },
    },
    "elements": {
        "thinking": THINKING,
        "content": CONTENT,
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"
            },
            "transform": NAMED,
        },
    },
    "pairs": {
        "thinking": {"open": "<|channel>thought\n", "close": "<channel|>"},
        "content": {"close": ["<turn|>", "<|tool_response>"]},
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close": "<tool_call|>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "transform": NAMED,
        },
    },
    "lines": {
        "content": {"close": "<|end|>"},
        "tool_calls": {
            "open_pattern": r"<\|call\|>(?P<name>\w+)\n",
            "close": "<|end_call|>",
            "repeats": True,
            "content": "kv-lines",
            "transform": NAMED,
        },
    },
    "channels": {
        "thinking": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
        "content": {"open": "<|channel|>final<|message|>", "close": ["<|end|>", "<|return|>"]},
        "tool_calls": {
            "open_pattern": (
                r"<\|channel\|>commentary to=functions\.(?P<name>[\w.-]+)\s*"
                r"(?:<\|constrain\|>json)?<\|message\|>"
            ),
            "close": ["<|call|>", "<|end|>"],
            "repeats": True,
            "content": "json",
            "transform": NAMED,
        },
    },
}
WEATHER = '{"city": "Paris", "days": 2}'
OUTPUTS: dict[str, list[str]] = {
    "json": [
        "Hello there.<|im_end|>",
        "<think>\nHm.\n\nSo.\n</think>\n\nYes.<|im_end|>",
        f'I look.\n<tool_call>\n{{"name": "f", "arguments": {WEATHER}}}\n</tool_call><|im_end|>',
        f'<think>\nHm.</think><tool_call>{{"name": "f", "arguments": {WEATHER}}}</tool_call>\n'
        f'<tool_call>{{"name": "g", "arguments": {{}}}}</tool_call>',
    ],
    "list": [
        "[THINK]Hm.[/THINK]Yes.</s>",
        f'Oh. [TOOL_CALLS][{{"tool": "f", "parameters": {WEATHER}}},'
        ' {"tool": "g", "parameters": {}}]</s>',
        f'[TOOL_CALLS][{{"tool": "f", "parameters": {WEATHER}}}]',
    ],
    "fields": ["Hi.<|end|>", f'Hi.<|call|>{{"tool": "f", "args": {WEATHER}}}<|end|>'],
    "elements": [
        "<think>\nHm.</think>Yes.",
        "I look.\n<tool_call>\n<function=f>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>",
    ],
    "pairs": [
        "<|channel>thought\nHm.\n<channel|>Yes.<turn|>",
        'Oh.<|tool_call>call:f{city:<|"|>Paris<|"|>,days:2}<tool_call|>'
        '<|tool_call>call:g{a:{b:[1,<|"|>x: {y}<|"|>]}}<tool_call|><turn|>',
    ],
    "lines": ["Hi.<|end|>", "Hi.<|call|>f\ncity: Paris\ndays: 2\n<|end_call|>"],
    "channels": [
        "<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Yes.<|return|>",
        "<|channel|>analysis<|message|>Hm.<|end|><|channel|>commentary to=functions.f "
        f"<|constrain|>json<|message|>{WEATHER}<|call|>",
        f"<|channel|>commentary to=functions.f<|message|>{WEATHER}<|call|>",
    ],
}
PARAMETERS = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]
TOKEN = re.compile(r'<\|?[\w"]+\|?>|</?[a-z_]+>|\[/?[A-Z_]+\]')


def checkpoint(fields: dict[str, Any], tokens: tuple[str, ...] = ()) -> Checkpoint:
    template = {"version": 1, "start_anchor": "<|assistant|>", "fields": fields}
    return Checkpoint(tokens, {"response_template": template})


def read(formats: Formats, parts: list[Piece]) -> tuple[str, str, list[tuple[str, Any]]]:
    options = ParserOptions(reasoning=True, tools=True, schemas={"f": PARAMETERS})
    parser, message, events = OutputParser(formats, options), Message(), list[Event]()
    for part in parts:
        parser.push(part, events)
    parser.finish(events)
    for event in events:
        message.add(event)
    assert all(event.complete for event in events if type(event) is CallEnd)
    calls = [(call.name, json.loads(call.arguments)) for call in message.calls]
    return message.text.strip(), message.reasoning.strip(), calls


def expected(name: str, output: str) -> tuple[str, str, list[tuple[str, Any]]]:
    template = {"start_anchor": "<|assistant|>", "fields": TEMPLATES[name]}
    found = parse_response(output, template, prefix="", tools=TOOLS)
    thinking = found.get("thinking", found.get("reasoning_content", ""))
    calls = [each["function"] for each in found.get("tool_calls", [])]
    return found.get("content", ""), thinking, [(c["name"], c["arguments"]) for c in calls]


@pytest.mark.parametrize("name", TEMPLATES)
def test_outputs_are_read_as_the_library_reads_them(name: str) -> None:
    as_text = Formats(messages=of_checkpoint(checkpoint(TEMPLATES[name])))
    for output in OUTPUTS[name]:
        want = expected(name, output)
        assert any(want)
        for at in range(len(output) + 1):
            parts = [Piece(output[:at], 5, False), Piece(output[at:], 5, False)]
            assert read(as_text, parts) == want, (output, at)
        assert read(as_text, [Piece(char, 5, False) for char in output]) == want


@pytest.mark.parametrize("name", TEMPLATES)
def test_markers_that_are_tokens(name: str) -> None:
    names = tuple(sorted({token for output in OUTPUTS[name] for token in TOKEN.findall(output)}))
    ids = {token: 1000 + at for at, token in enumerate(names)}
    formats = Formats.of("", FormatNames("hf", "hf"), ids.get, checkpoint(TEMPLATES[name], names))
    assert formats.messages is not None and formats.marker_ids
    for output in OUTPUTS[name]:
        parts: list[Piece] = []
        for part in filter(None, re.split(f"({TOKEN.pattern})", output)):
            if part in formats.marker_ids.values():
                parts.append(Piece("", ids[part], True))
            elif not TOKEN.fullmatch(part):  # others show no text
                parts += [Piece(char, 5, False) for char in part]
        assert read(formats, parts) == expected(name, output), output


def test_a_group_in_an_opener_of_reasoning_is_no_call() -> None:
    thinking = {"open_pattern": r"<\|channel\|>(?P<name>\w+)<\|message\|>", "close": "<|end|>"}
    formats = Formats(messages=of_checkpoint(checkpoint({"thinking": thinking, "content": {}})))
    for output in ("<|channel|>analysis<|message|>Hm.<|end|>Yes.",):
        assert read(formats, [Piece(output, 5, False)]) == ("Yes.", "Hm.", [])


def test_a_header_takes_little_time() -> None:
    thinking = {"open_pattern": r"<a>\s*[^<]*\s*[^<]*\s*b</a>", "close": "</t>"}
    formats = Formats(messages=of_checkpoint(checkpoint({"thinking": thinking, "content": {}})))
    for text in (" " * 1000, "a" * 1000, "a " * 500):
        begun = time.thread_time()
        assert read(formats, [Piece(f"<a>{text}</a>", 5, False)])[1:] == ("", [])
        assert time.thread_time() - begun < 1  # 20 ms; a cubic time is minutes


def test_where_a_prompt_ends() -> None:
    formats = Formats(messages=of_checkpoint(checkpoint(TEMPLATES["pairs"])))
    assert formats.after_prompt("<|turn>model\n<|channel>thought\n") == REASONING
    assert formats.after_prompt("<|channel>thought\n<channel|>") == ANSWER
    assert formats.after_prompt("<|turn>model\n") is None
    channels = Formats(messages=of_checkpoint(checkpoint(TEMPLATES["channels"])))
    assert channels.after_prompt("<|channel|>final<|message|>") == ANSWER


CALLS = TEMPLATES["elements"]["tool_calls"]
LINES = TEMPLATES["lines"]["tool_calls"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "fields: they are some of thinking"),
        ({"role": {}}, "fields: they are some of thinking"),
        ({"thinking": THINKING, "reasoning": THINKING}, "more than one is reasoning"),
        ({"content": {"content": "json"}}, "fields.content.content: it is read as text only"),
        ({"content": {"close": 5}}, "it is a text, or a list of texts"),
        ({"thinking": {"open_pattern": "(?=x)y"}}, "is not taken apart"),
        ({"thinking": {"open_pattern": "(a+)+b"}}, "is not taken apart"),
        ({"thinking": {"open_pattern": "a{3}"}}, "is not taken apart"),
        ({"thinking": {"open_pattern": r"\w+:"}}, "it has to begin with text"),
        ({"thinking": {"open_pattern": r"<a>\s*\w+b\w*\s+\w+d"}}, "repeats more than 2 classes"),
        ({"thinking": {"open_pattern": "<a>[z-a]+b"}}, "is not taken apart"),
        ({"tool_calls": {**LINES, "content_args": {"kv_sep": ""}}}, "line_sep and kv_sep are"),
        (
            {
                "tool_calls": {
                    **CALLS,
                    "content_args": {"tag_pattern": r"<(?P<key>a+)(?P<value>.*)>"},
                }
            },
            "is not taken apart",
        ),
        (
            {
                "tool_calls": {
                    **CALLS,
                    "content_args": {"tag_pattern": r"<(?P<key>\w+)(?P<value>.*)"},
                }
            },
            "there is no text around its groups",
        ),
        ({"thinking": {"open_pattern": "(a|b)" * 9}}, "more than 32 alternatives"),
        ({"thinking": {"open_pattern": "a" * 2000}}, "more than 1024 characters"),
        ({"tool_calls": {**CALLS, "transform": {"function": {"name": "f"}}}}, "is no placeholder"),
        ({"tool_calls": {**CALLS, "content": "int"}}, "calls are json, xml-inline or kv-lines"),
        ({"tool_calls": {**CALLS, "open_pattern": "<f>"}}, "it has no group 'name'"),
        ({"tool_calls": {**CALLS, "content_args": {}}}, "one group `key`"),
        ({"tool_calls": {"content": "json"}}, "it has no opener"),
    ],
)
def test_templates_that_cannot_be_read(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RenderError, match=re.escape(words)):
        of_checkpoint(checkpoint(fields))


def test_a_checkpoint_without_a_template_is_refused() -> None:
    with pytest.raises(RenderError, match="this model's has none: name another format"):
        choose_formats("hf", None, "")
    with pytest.raises(RenderError, match="version: only 1 is known"):
        of_checkpoint(Checkpoint((), {"response_template": {"version": 2, "fields": {}}}))
    with pytest.raises(RenderError, match="name different formats"):
        choose_formats("hf", "hermes", "", checkpoint(TEMPLATES["json"]))
    only = choose_formats("hf", None, "", checkpoint(TEMPLATES["json"]))
    assert only.messages is not None


def test_a_template_is_used_if_nothing_else_is_known() -> None:
    described = checkpoint(TEMPLATES["json"])
    assert choose_formats(None, None, "{{ messages }}", described).messages is not None
    assert choose_formats(None, None, "</think>", described).reasoning is THINK
    assert not any(choose_formats(None, "none", "", described))
    assert not any(choose_formats(None, None, "", checkpoint({"role": {}})))


def test_patterns_are_taken_apart() -> None:
    assert anchors("", r"\s*<f=(?P<n>[^>]+)>\n?(?:a|b\.)?$") == [
        (Space(), "<f=", Words("[^>]+", "n"), ">", Space(), "a", End()),
        (Space(), "<f=", Words("[^>]+", "n"), ">", Space(), "b.", End()),
        (Space(), "<f=", Words("[^>]+", "n"), ">", Space(), End()),
    ]


def test_tags_have_the_suffix_of_the_vocabulary() -> None:
    found = Checkpoint(("<tool_calls:6124c78e>", "<think:6124c78e>", "<tool_calls_x>", "<b>"))
    assert found.suffix("tool_calls") == ":6124c78e"
    assert found.suffix("b") == ""
    set_by_hand = Checkpoint(("<tool_calls>",), {"token_suffix": ":ab"})
    assert (set_by_hand.suffix("tool_calls"), set_by_hand.suffix("think")) == ("", ":ab")
    assert Checkpoint((), {"token_suffix": ["x"]}).suffix("think") == ""
    for make in (hunyuan_v3, hunyuan_v4):
        assert "<tool_calls:6124c78e>" in make(found).openers
        assert "<tool_calls>" in make(Checkpoint()).openers
    assert hunyuan(found).closers == ("</think:6124c78e>",)
    assert hunyuan(Checkpoint()) is THINK
    template = "<tool_calls:6124c78e><arg_key:6124c78e></think:6124c78e>"
    chosen = choose_formats(None, None, template, found)
    assert (chosen.tools, chosen.reasoning) == (hunyuan_v4(found), hunyuan(found))
    assert marker_ids({"<tool_calls:6124c78e>": 7}.get, found) == {7}
