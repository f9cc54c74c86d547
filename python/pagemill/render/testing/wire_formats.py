"""Writes calls of tools as models do, in each format of `formats.table`: for tests of what reads
them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import INDEX, KEY, Spelling, ToolFormat
from pagemill.render.formats.table import TOOL_FORMATS, load_format

CHECKPOINT = Checkpoint(
    ("<tool_calls:6124c78e>", "<think:6124c78e>"),
    {
        "response_template": {
            "start_anchor": "<|im_start|>assistant\n",
            "fields": {
                "thinking": {"open": "<think>", "close": "</think>"},
                "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)"},
                "tool_calls": {
                    "open_pattern": r"\s*<tool_call>\s*<function=(?P<called>[^>\n]+)>",
                    "close_pattern": r"</function>\s*</tool_call>",
                    "repeats": True,
                    "content": "xml-inline",
                    "content_args": {
                        "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>(?P<value>.*?)</parameter>"
                    },
                    "transform": {"function": {"name": "{called}", "arguments": "{content}"}},
                },
            },
        }
    },
)
"""Says what formats need that differ between checkpoints."""


class ToolCall(NamedTuple):
    """A call, and how its arguments are to be read."""

    name: str
    arguments: dict[str, Any]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def spelled(spelling: Spelling, calls: list[ToolCall]) -> str:
    """`calls` as grammars have them written."""

    def argument(key: str, value: Any) -> str:
        values = spelling.parameters
        assert values is not None
        is_plain = isinstance(value, str) and not values.quotes
        text = value if is_plain else _json(value)
        before, after = values.before_value, values.after_value
        if not isinstance(value, str):
            before = values.before_json or before
            after = after if values.after_json is None else values.after_json
        return f"{values.before_key}{key}{before}{text}{after.replace(KEY, key)}"

    def call(at: int, each: ToolCall) -> str:
        values = spelling.parameters
        arguments = (
            _json(each.arguments)
            if values is None
            else values.between.join(argument(*item) for item in each.arguments.items())
        )
        parts = (spelling.before_name, each.name, spelling.before_arguments, arguments)
        return "".join((*parts, spelling.after_arguments)).replace(INDEX, str(at))

    written = [call(at, each) for at, each in enumerate(calls)]
    return spelling.begin + spelling.between.join(written) + spelling.end


def _each(write: Callable[[ToolCall], str]) -> Callable[[list[ToolCall]], str]:
    return lambda calls: "".join(map(write, calls))


def _kimi_k3(calls: list[ToolCall]) -> str:
    def argument(key: str, value: Any) -> str:
        kind = "string" if isinstance(value, str) else "object"
        opener = f'<|open|>argument key="{key}" type="{kind}"<|sep|>'
        return f"{opener}{_plain(value)}<|close|>argument<|sep|>"

    parts = [
        f'<|open|>call tool="{call.name}" index="{at}"<|sep|>'
        + "".join(argument(key, value) for key, value in call.arguments.items())
        + "<|close|>call<|sep|>"
        for at, call in enumerate(calls)
    ]
    return f"<|open|>tools<|sep|>{''.join(parts)}<|close|>tools<|sep|>"


def _minimax_m3(calls: list[ToolCall]) -> str:
    mark = "]<]minimax[>["

    def element(name: str, value: Any) -> str:
        if isinstance(value, dict):
            fields = cast(dict[str, Any], value)
            inner = "".join(element(key, each) for key, each in fields.items())
        elif isinstance(value, list):
            inner = "".join(element("item", each) for each in cast(list[Any], value))
        else:
            inner = _plain(value)
        return f"{mark}<{name}>{inner}{mark}</{name}>"

    parts = [
        f'{mark}<invoke name="{call.name}">'
        + "".join(element(key, value) for key, value in call.arguments.items())
        + f"{mark}</invoke>\n"
        for call in calls
    ]
    return f"{mark}<tool_call>\n{''.join(parts)}{mark}</tool_call>"


def _invokes(opener: str, closer: str, tag: str) -> Callable[[list[ToolCall]], str]:
    def value(key: str, each: Any) -> str:
        parameter = tag.format("parameter")
        return f'<{parameter} name="{key}">{_plain(each)}</{parameter}>\n'

    def write(call: ToolCall) -> str:
        values = "".join(value(key, each) for key, each in call.arguments.items())
        invoke = tag.format("invoke")
        return f'<{invoke} name="{call.name}">\n{values}</{invoke}>\n'

    return lambda calls: f"{opener}\n{''.join(map(write, calls))}{closer}"


def _python(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"


def _quoted(opener: str, closer: str, quote: str) -> Callable[[list[ToolCall]], str]:
    def value(each: Any) -> str:
        if isinstance(each, str):
            return f"{quote}{each}{quote}"
        if isinstance(each, dict):
            fields = cast(dict[str, Any], each)
            return ",".join(f"{key}:{value(item)}" for key, item in fields.items()).join("{}")
        if isinstance(each, list):
            return ",".join(map(value, cast(list[Any], each))).join("[]")
        return _json(each)

    return _each(lambda call: f"{opener}call:{call.name}{value(call.arguments)}{closer}")


_OWN: Mapping[str, Callable[[list[ToolCall]], str]] = {
    "element_formats:MINIMAX_M3": _minimax_m3,
    "message_formats:HARMONY": _each(
        lambda c: (
            f"<|start|>assistant<|channel|>commentary to=functions.{c.name} <|constrain|>json"
            f"<|message|>{_json(c.arguments)}<|call|>"
        )
    ),
    "message_formats:INKLING": _each(
        lambda c: (
            "<|message_model|><|content_invoke_tool_json|>"
            f"{_json({'name': c.name, 'args': c.arguments})}<|end_message|>"
        )
    ),
    "message_formats:KIMI_K3": _kimi_k3,
    "message_formats:MUSE_GLIMMER": _each(
        lambda c: (
            f"<|start|>assistant to={c.name}<|message|>"
            + _invokes("<atem:function_calls>", "</atem:function_calls>", "atem:{}")([c])
            + "<|eom|>"
        )
    ),
    "response_template:of_checkpoint": lambda calls: _writer("element_formats:MIMO")(calls),
    "other_formats:FUNCTIONGEMMA": _quoted(
        *("<start_function_call>", "<end_function_call>", "<escape>")
    ),
    "other_formats:GEMMA4": _quoted("<|tool_call>", "<tool_call|>", '<|"|>'),
    "other_formats:LFM2": lambda calls: (
        f"<|tool_call_start|>{', '.join(map(_python, calls)).join('[]')}<|tool_call_end|>"
    ),
    "other_formats:LLAMA4_PYTHONIC": lambda calls: ", ".join(map(_python, calls)).join("[]"),
    "other_formats:OLMO3": lambda calls: (
        "<function_calls>" + "\n".join(map(_python, calls)) + "</function_calls>"
    ),
    "other_formats:PYTHONIC": lambda calls: ", ".join(map(_python, calls)).join("[]"),
}


def _writer(path: str) -> Callable[[list[ToolCall]], str]:
    if path in _OWN:
        return _OWN[path]
    kind = load_format(path, CHECKPOINT)
    assert isinstance(kind, ToolFormat) and kind.spelling is not None
    return partial(spelled, kind.spelling)


WRITERS: Mapping[str, Callable[[list[ToolCall]], str]] = {
    path: _writer(path) for path in TOOL_FORMATS.values()
}
"""By the rows' constants; a call is written so that its arguments come back unchanged."""
