"""Writes calls of tools as models do, in each format of `formats.table`: for tests of what reads
them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast


class ToolCall(NamedTuple):
    """A call, and how its arguments are to be read."""

    name: str
    arguments: dict[str, Any]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _object(call: ToolCall, name: str = "name", arguments: str = "arguments") -> str:
    return _json({name: call.name, arguments: call.arguments})


def _each(write: Callable[[ToolCall], str], joined: str = "") -> Callable[[list[ToolCall]], str]:
    return lambda calls: joined.join(map(write, calls))


def _array(begin: str, end: str, arguments: str = "arguments") -> Callable[[list[ToolCall]], str]:
    def write(calls: list[ToolCall]) -> str:
        return begin + ", ".join(_object(c, arguments=arguments) for c in calls).join("[]") + end

    return write


def _cohere(calls: list[ToolCall]) -> str:
    objects = [
        {"tool_call_id": str(at), "tool_name": call.name, "parameters": call.arguments}
        for at, call in enumerate(calls)
    ]
    return f"<|START_ACTION|>{_json(objects)}<|END_ACTION|>"


def _apertus(calls: list[ToolCall]) -> str:
    return f"<|tools_prefix|>{_json([{c.name: c.arguments} for c in calls])}<|tools_suffix|>"


def _deepseek_v3(calls: list[ToolCall]) -> str:
    parts = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{_json(call.arguments)}\n```"
        "<｜tool▁call▁end｜>"
        for call in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "\n".join(parts) + "<｜tool▁calls▁end｜>"


def _deepseek_v31(calls: list[ToolCall]) -> str:
    parts = [
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{_json(call.arguments)}<｜tool▁call▁end｜>"
        for call in calls
    ]
    return f"<｜tool▁calls▁begin｜>{''.join(parts)}<｜tool▁calls▁end｜>"


def _kimi_k2(calls: list[ToolCall]) -> str:
    parts = [
        f"<|tool_call_begin|>functions.{call.name}:{at}<|tool_call_argument_begin|>"
        f"{_json(call.arguments)}<|tool_call_end|>"
        for at, call in enumerate(calls)
    ]
    return f"<|tool_calls_section_begin|>{''.join(parts)}<|tool_calls_section_end|>"


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


def _plamo3(calls: list[ToolCall]) -> str:
    def mark(name: str) -> str:
        return f"<|plamo:{name}:plamo|>"

    parts = [
        mark("begin_tool_request")
        + mark("begin_tool_name")
        + call.name
        + mark("end_tool_name")
        + mark("begin_tool_arguments")
        + "<|plamo:constrain|>json<|plamo:msg|>"
        + _json(call.arguments)
        + mark("end_tool_arguments")
        + mark("end_tool_request")
        for call in calls
    ]
    return mark("begin_tool_requests") + "".join(parts) + mark("end_tool_requests")


def _functions(opener: str, closer: str, border: str) -> Callable[[list[ToolCall]], str]:
    def write(call: ToolCall) -> str:
        values = "".join(
            f"<parameter={key}>{border}{_plain(value)}{border}</parameter>\n"
            for key, value in call.arguments.items()
        )
        return f"{opener}\n<function={call.name}>\n{values}</function>\n{closer}"

    return _each(write, "\n")


def _pairs(key: str = "arg_key", value: str = "arg_value") -> Callable[[ToolCall], str]:
    def write(call: ToolCall) -> str:
        return "".join(
            f"<{key}>{name}</{key}><{value}>{_plain(each)}</{value}>"
            for name, each in call.arguments.items()
        )

    return write


def _invokes(opener: str, closer: str, tag: str = "{}") -> Callable[[list[ToolCall]], str]:
    def value(key: str, each: Any) -> str:
        kind = f' string="{"true" if isinstance(each, str) else "false"}"' if "DSML" in tag else ""
        parameter = tag.format("parameter")
        return f'<{parameter} name="{key}"{kind}>{_plain(each)}</{parameter}>\n'

    def write(call: ToolCall) -> str:
        values = "".join(value(key, each) for key, each in call.arguments.items())
        invoke = tag.format("invoke")
        return f'<{invoke} name="{call.name}">\n{values}</{invoke}>\n'

    return lambda calls: f"{opener}\n{''.join(map(write, calls))}{closer}"


def _minicpm5(call: ToolCall) -> str:
    values = "".join(
        f'<param name="{key}">{_plain(value)}</param>' for key, value in call.arguments.items()
    )
    return f'<function name="{call.name}">{values}</function>'


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


_HUNYUAN = _pairs()
_GLM = _pairs()
_HORIZON = _pairs("ifm|arg_key", "ifm|arg_value")
WRITERS: Mapping[str, Callable[[list[ToolCall]], str]] = {
    "element_formats:DEEPSEEK_V32": _invokes(
        *("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜{}")
    ),
    "element_formats:DEEPSEEK_V4": _invokes(
        *("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜{}")
    ),
    "element_formats:DEEPSEEK_V41": _invokes(
        *("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ {}")
    ),
    "element_formats:DOTS": _invokes("<dots_function_call>", "</dots_function_call>"),
    "element_formats:GLM45": _each(lambda c: f"<tool_call>{c.name}\n{_GLM(c)}</tool_call>"),
    "element_formats:HUNYUAN_V3": lambda calls: (
        "<tool_calls>"
        + "".join(f"<tool_call>{c.name}<tool_sep>{_HUNYUAN(c)}</tool_call>" for c in calls)
        + "</tool_calls>"
    ),
    "element_formats:HUNYUAN_V4": lambda calls: (
        "<tool_calls>"
        + "".join(f"<tool_call>{c.name}{_HUNYUAN(c)}</tool_call>" for c in calls)
        + "</tool_calls>"
    ),
    "element_formats:K2_HORIZON": lambda calls: (
        "<ifm|tool_calls>"
        + "".join(f"<ifm|tool_call>{c.name}{_HORIZON(c)}</ifm|tool_call>" for c in calls)
        + "</ifm|tool_calls>"
    ),
    "element_formats:MIMO": _functions("<tool_call>", "</tool_call>", ""),
    "element_formats:MINICPM5": _each(_minicpm5),
    "element_formats:MINIMAX_M2": _invokes("<minimax:tool_call>", "</minimax:tool_call>"),
    "element_formats:MINIMAX_M3": _minimax_m3,
    "element_formats:QWEN3_CODER": _functions("<tool_call>", "</tool_call>", "\n"),
    "element_formats:SEED_OSS": _functions("<seed:tool_call>", "</seed:tool_call>", ""),
    "element_formats:STEP3": lambda calls: (
        "<｜tool_calls_begin｜>"
        + "".join(
            "<｜tool_call_begin｜>function<｜tool_sep｜>"
            + _invokes("", "", "steptml:{}")([call]).strip()
            + "<｜tool_call_end｜>"
            for call in calls
        )
        + "<｜tool_calls_end｜>"
    ),
    "json_formats:APERTUS": _apertus,
    "json_formats:COHERE": _cohere,
    "json_formats:GIGACHAT3": lambda calls: f"<|function_call|>{_object(calls[0])}",
    "json_formats:GRANITE": _array("<|tool_call|>", ""),
    "json_formats:GRANITE_20B": _each(lambda c: f"<function_call> {_object(c)}"),
    "json_formats:HERMES": _each(lambda c: f"<tool_call>\n{_object(c)}\n</tool_call>", "\n"),
    "json_formats:INTERNLM": _each(
        lambda c: f"<|action_start|><|plugin|>{_object(c, arguments='parameters')}<|action_end|>"
    ),
    "json_formats:LLAMA3": _each(lambda c: _object(c, arguments="parameters"), "; "),
    "json_formats:LONGCAT": _each(lambda c: f"<longcat_tool_call>{_object(c)}</longcat_tool_call>"),
    "json_formats:PHI4_MINI": _array("functools", ""),
    "json_formats:TOOL_CALLS": _array("<tool_calls>", "</tool_calls>"),
    "json_formats:XLAM": _array("", ""),
    "message_formats:HARMONY": _each(
        lambda c: (
            f"<|start|>assistant<|channel|>commentary to=functions.{c.name} <|constrain|>json"
            f"<|message|>{_json(c.arguments)}<|call|>"
        )
    ),
    "message_formats:INKLING": _each(
        lambda c: (
            "<|message_model|><|content_invoke_tool_json|>"
            f"{_object(c, arguments='args')}<|end_message|>"
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
    "named_json_formats:DEEPSEEK_V3": _deepseek_v3,
    "named_json_formats:DEEPSEEK_V31": _deepseek_v31,
    "named_json_formats:KIMI_K2": _kimi_k2,
    "named_json_formats:MISTRAL": _each(
        lambda c: f"[TOOL_CALLS]{c.name}[ARGS]{_json(c.arguments)}"
    ),
    "named_json_formats:PLAMO3": _plamo3,
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
"""By the rows' constants; a call is written so that its arguments come back unchanged."""
