"""Tool formats whose calls are a name and, behind it, arguments in JSON."""

from __future__ import annotations

from dataclasses import replace

from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import ANSWER, INDEX, Body, Gap, Header, Spelling, ToolFormat
from pagemill.render.formats.json_calls import JsonArguments, JsonCall

_NAME = r"\s*(?P<name>\S+)\s*"

# DeepSeek writes fullwidth bars and the lower one eighth block for a space.
_CALLS = {"<｜tool▁call▁begin｜>": "name", "<｜tool▁calls▁end｜>": ANSWER}
DEEPSEEK_V31 = ToolFormat(
    {
        "calls": Gap(on=_CALLS),
        "name": Header(_NAME, on={"<｜tool▁sep｜>": "arguments"}),
        "arguments": Body(JsonArguments, on={"<｜tool▁call▁end｜>": "calls"}, in_call=True),
    },
    openers={"<｜tool▁calls▁begin｜>": "calls", "<｜tool▁call▁begin｜>": "name"},
    marks=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
    lacks=("```json",),
    spelling=Spelling(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        begin="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
    ),
)
DEEPSEEK_V3 = ToolFormat(
    {
        "calls": Gap(on={**_CALLS, "<｜tool▁call▁begin｜>": "type"}),
        "type": Header(r"\s*\w*\s*", on={"<｜tool▁sep｜>": "name"}),
        "name": Header(_NAME, on={"```json": "arguments"}),
        "arguments": Body(
            JsonArguments, on={"```": "end", "<｜tool▁call▁end｜>": "calls"}, in_call=True
        ),
        "end": Gap(on={"<｜tool▁call▁end｜>": "calls", "<｜tool▁calls▁end｜>": ANSWER}),
    },
    openers={"<｜tool▁calls▁begin｜>": "calls", "<｜tool▁call▁begin｜>": "type"},
    marks=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json"),
    spelling=Spelling(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        "\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        begin="<｜tool▁calls▁begin｜>",
        between="\n",
        end="<｜tool▁calls▁end｜>",
    ),
)
KIMI_K2 = ToolFormat(
    {
        "calls": Gap(on={"<|tool_call_begin|>": "name", "<|tool_calls_section_end|>": ANSWER}),
        "name": Header(
            r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:]+)(?::\d+)?)\s*",
            on={"<|tool_call_argument_begin|>": "arguments"},
        ),
        "arguments": Body(
            JsonArguments,
            on={"<|tool_call_end|>": "calls", "<|tool_calls_section_end|>": ANSWER},
            in_call=True,
        ),
    },
    openers={"<|tool_calls_section_begin|>": "calls", "<|tool_call_begin|>": "name"},
    marks=("<|tool_calls_section_begin|>",),
    spelling=Spelling(
        "<|tool_call_begin|>functions.",
        f":{INDEX}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        begin="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
    ),
)
MISTRAL = ToolFormat(
    {
        "call": Gap(on={"[": "calls", "{": "calls"}, otherwise="name"),
        "calls": Body(JsonCall(), then=ANSWER, keeps_marker=True),
        "name": Header(
            r"(?P<name>[^\s\[{]+)\s*",
            on={"[CALL_ID]": "id", "[ARGS]": "arguments", "{": "object"},
        ),
        "id": Header(r".*", on={"[ARGS]": "arguments"}, in_call=True),
        "arguments": Body(JsonArguments, on={"[TOOL_CALLS]": "call"}, then=ANSWER, in_call=True),
        "object": Body(
            JsonArguments,
            on={"[TOOL_CALLS]": "call"},
            then=ANSWER,
            keeps_marker=True,
            in_call=True,
        ),
    },
    openers={"[TOOL_CALLS]": "call"},
    marks=("[TOOL_CALLS]",),
    spelling=Spelling("[TOOL_CALLS]", "[ARGS]"),
)
_MISTRAL_ARRAY = replace(
    MISTRAL,
    spelling=Spelling(
        *('{"name": "', '", "arguments": ', "}"), begin="[TOOL_CALLS][", between=", ", end="]"
    ),
)


def mistral(checkpoint: Checkpoint) -> ToolFormat:
    """A name with arguments or, of vocabularies before version 11, an array of objects."""
    is_old = "[TOOL_CALLS]" in checkpoint.tokens and "[ARGS]" not in checkpoint.tokens
    return _MISTRAL_ARRAY if is_old else MISTRAL


def _plamo(name: str) -> str:
    return f"<|plamo:{name}:plamo|>"


PLAMO3 = ToolFormat(
    {
        "requests": Gap(
            on={
                _plamo("begin_tool_request"): "request",
                _plamo("end_tool_requests"): ANSWER,
            }
        ),
        "request": Gap(on={_plamo("begin_tool_name"): "name"}),
        "name": Header(_NAME, on={_plamo("end_tool_name"): "named"}),
        "named": Gap(on={_plamo("begin_tool_arguments"): "constraint"}, in_call=True),
        "constraint": Header(r".*", on={"<|plamo:msg|>": "arguments"}, in_call=True),
        "arguments": Body(JsonArguments, on={_plamo("end_tool_arguments"): "end"}, in_call=True),
        "end": Gap(on={_plamo("end_tool_request"): "requests"}),
    },
    openers={_plamo("begin_tool_requests"): "requests"},
    marks=("<|plamo:begin_tool_requests:plamo|>",),
    spelling=Spelling(
        _plamo("begin_tool_request") + _plamo("begin_tool_name"),
        _plamo("end_tool_name")
        + _plamo("begin_tool_arguments")
        + "<|plamo:constrain|>json<|plamo:msg|>",
        _plamo("end_tool_arguments") + _plamo("end_tool_request"),
        begin=_plamo("begin_tool_requests"),
        end=_plamo("end_tool_requests"),
    ),
)
