"""Tool formats whose calls are JSON objects, with the name within."""

from __future__ import annotations

from dataclasses import replace

from pagemill.render.formats.format import ANSWER, INDEX, Body, Gap, Header, Spelling, ToolFormat
from pagemill.render.formats.json_calls import JsonCall

_PLAIN = JsonCall()
_PARAMETERS = JsonCall(arguments=("parameters", "arguments"))


def _objects(
    begin: str = "", end: str = "", between: str = "", arguments: str = "arguments"
) -> Spelling:
    """`{"name": "f", "arguments": {}}`, each between `begin` and `end`."""
    return Spelling(f'{begin}{{"name": "', f'", "{arguments}": ', f"}}{end}", between=between)


def _array(begin: str, end: str = "", arguments: str = "arguments") -> Spelling:
    """An array of such objects."""
    return Spelling(
        '{"name": "', f'", "{arguments}": ', "}", f"{begin}[", between=", ", end=f"]{end}"
    )


def _between(
    opener: str,
    closer: str,
    spelling: Spelling,
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
        spelling=spelling,
    )


def _after(
    *openers: str, spelling: Spelling, call: JsonCall = _PLAIN, marks: tuple[str, ...] = ()
) -> ToolFormat:
    """An object, or an array of them, which ends by itself."""
    return ToolFormat(
        {"call": Body(call, then=ANSWER)},
        openers=dict.fromkeys(openers, "call"),
        marks=marks,
        spelling=spelling,
    )


HERMES = _between(
    *("<tool_call>", "</tool_call>"),
    _objects("<tool_call>\n", "\n</tool_call>", "\n"),
    marks=("<tool_call>", "</tool_call>", "arguments"),
    lacks=("<function=", "<arg_key>", "<parameter=", "<｜tool", "<tool_call|>"),
)
LONGCAT = _between(
    *("<longcat_tool_call>", "</longcat_tool_call>"),
    _objects("<longcat_tool_call>", "</longcat_tool_call>"),
    marks=("<longcat_tool_call>",),
)
TOOL_CALLS = _between(
    *("<tool_calls>", "</tool_calls>"),
    _array("<tool_calls>", "</tool_calls>"),
    marks=("<tool_calls>", "</tool_calls>"),
    lacks=("<arg_key>", "<invoke", "<｜DSML｜"),
)
APERTUS = _between(
    *("<|tools_prefix|>", "<|tools_suffix|>"),
    Spelling('{"', '": ', "}", begin="<|tools_prefix|>[", between=", ", end="]<|tools_suffix|>"),
    JsonCall(names=()),
    marks=("<|tools_prefix|>",),
)
COHERE = _between(
    *("<|START_ACTION|>", "<|END_ACTION|>"),
    Spelling(
        f'{{"tool_call_id": "{INDEX}", "tool_name": "',
        '", "parameters": ',
        "}",
        begin="<|START_ACTION|>[",
        between=", ",
        end="]<|END_ACTION|>",
    ),
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
    spelling=_objects("<|action_start|><|plugin|>", "<|action_end|>", arguments="parameters"),
)
GRANITE = _after(
    "<|tool_call|>", "<tool_call>", spelling=_array("<|tool_call|>"), marks=("<|tool_call|>",)
)
GRANITE_20B = _after(
    "<function_call>", spelling=_objects("<function_call> "), marks=("<function_call>",)
)
PHI4_MINI = _after(
    "functools", spelling=_array("functools"), call=_PARAMETERS, marks=("functools[",)
)
GIGACHAT3 = ToolFormat(
    {
        "separator": Header(r"\s*function call", on={"<|role_sep|>": "call"}),
        "call": Body(_PLAIN, then=ANSWER),
    },
    openers={"<|function_call|>": "call", "<|message_sep|>": "separator"},
    marks=("<|message_sep|>", "<|role_sep|>"),
    spelling=replace(_objects("<|function_call|>"), is_single=True),
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
    spelling=_objects(between="; ", arguments="parameters"),
)
XLAM = ToolFormat(
    {
        "call": Body(_PLAIN, on={"```": ANSWER, "</tool_call>": ANSWER}),
        "array": Body(_PLAIN, then=ANSWER, keeps_marker=True),
    },
    openers={"[TOOL_CALLS]": "call", "<tool_call>": "call", "```json": "call"},
    starts={"[": "array", "```": "call"},
    spelling=_array(""),
)
