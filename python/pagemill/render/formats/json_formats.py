"""Tool formats whose calls are JSON objects, with the name within."""

from __future__ import annotations

from pagemill.render.formats.format import ANSWER, Body, Gap, Header, ToolFormat
from pagemill.render.formats.json_calls import JsonCall

_PLAIN = JsonCall()
_PARAMETERS = JsonCall(arguments=("parameters", "arguments"))


def _between(
    opener: str,
    closer: str,
    call: JsonCall = _PLAIN,
    marks: tuple[str, ...] = (),
    lacks: tuple[str, ...] = (),
) -> ToolFormat:
    """An object, or an array of them, between two markers."""
    return ToolFormat(
        {"call": Body(call, on={closer: ANSWER, opener: "call"})},
        openers={opener: "call"},
        marks=marks,
        lacks=lacks,
    )


def _after(*openers: str, call: JsonCall = _PLAIN, marks: tuple[str, ...] = ()) -> ToolFormat:
    """An object, or an array of them, which ends by itself."""
    return ToolFormat(
        {"call": Body(call, then=ANSWER)}, openers=dict.fromkeys(openers, "call"), marks=marks
    )


HERMES = _between(
    *("<tool_call>", "</tool_call>"),
    marks=("<tool_call>", "</tool_call>", "arguments"),
    lacks=("<function=", "<arg_key>", "<parameter=", "<｜tool", "<tool_call|>"),
)
LONGCAT = _between(*("<longcat_tool_call>", "</longcat_tool_call>"), marks=("<longcat_tool_call>",))
TOOL_CALLS = _between(
    *("<tool_calls>", "</tool_calls>"),
    marks=("<tool_calls>", "</tool_calls>"),
    lacks=("<arg_key>", "<invoke", "<｜DSML｜"),
)
APERTUS = _between(
    *("<|tools_prefix|>", "<|tools_suffix|>", JsonCall(names=())), marks=("<|tools_prefix|>",)
)
COHERE = _between(
    *("<|START_ACTION|>", "<|END_ACTION|>"),
    JsonCall(("tool_name",), ("parameters",), ("tool_call_id",)),
    marks=("<|START_ACTION|>",),
)
INTERNLM = ToolFormat(
    {
        "action": Gap(on={"<|plugin|>": "call"}),
        "call": Body(_PARAMETERS, on={"<|action_end|>": ANSWER}),
    },
    openers={"<|action_start|>": "action"},
    marks=("<|action_start|>", "<|plugin|>"),
)
GRANITE = _after("<|tool_call|>", "<tool_call>", marks=("<|tool_call|>",))
GRANITE_20B = _after("<function_call>", marks=("<function_call>",))
PHI4_MINI = _after("functools", call=_PARAMETERS, marks=("functools[",))
GIGACHAT3 = ToolFormat(
    {
        "separator": Header(r"\s*function call", on={"<|role_sep|>": "call"}),
        "call": Body(_PLAIN, then=ANSWER),
    },
    openers={"<|function_call|>": "call", "<|message_sep|>": "separator"},
    marks=("<|message_sep|>", "<|role_sep|>"),
)
LLAMA3 = ToolFormat(
    {
        "call": Body(_PARAMETERS, then="end"),
        "object": Body(_PARAMETERS, then="end", keeps_marker=True),
        "end": Gap(on={";": "next", "{": "object"}),
        "next": Gap(on={"{": "object", "<|python_tag|>": "call"}),
    },
    openers={"<|python_tag|>": "call"},
    starts={"{": "object"},
    marks=("<|python_tag|>", '"parameters"'),
)
XLAM = ToolFormat(
    {
        "call": Body(_PLAIN, on={"```": ANSWER, "</tool_call>": ANSWER}),
        "array": Body(_PLAIN, then=ANSWER, keeps_marker=True),
    },
    openers={"[TOOL_CALLS]": "call", "<tool_call>": "call", "```json": "call"},
    starts={"[": "array", "```": "call"},
)
