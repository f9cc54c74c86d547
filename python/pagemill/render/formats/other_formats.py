"""Tool formats whose calls look like Python, or whose arguments look nearly like JSON."""

from __future__ import annotations

from functools import partial

from pagemill.render.formats.format import (
    ANSWER,
    Body,
    Gap,
    Header,
    Parameters,
    Spelling,
    ToolFormat,
)
from pagemill.render.formats.pairs import PairsShape
from pagemill.render.formats.python_calls import PythonCalls

_KEYWORDS = Parameters("", "=", between=", ", quotes=True)
"""JSON is Python here: `true`, `false` and `null` are read, too."""


def _python(begin: str, between: str, end: str) -> Spelling:
    return Spelling("", "(", ")", begin, between, end, _KEYWORDS)


PYTHONIC = ToolFormat(
    {"list": Body(PythonCalls, then=ANSWER, keeps_marker=True)},
    starts={"[": "list"},
    spelling=_python("[", ", ", "]"),
)
LLAMA4_PYTHONIC = ToolFormat(
    {
        "list": Body(PythonCalls, then=ANSWER, keeps_marker=True),
        "calls": Body(PythonCalls, on={"<|python_end|>": ANSWER}),
    },
    openers={"<|python_start|>": "calls"},
    starts={"[": "list"},
    marks=("<|python_start|>",),
    spelling=_python("[", ", ", "]"),
)
LFM2 = ToolFormat(
    {"calls": Body(PythonCalls, on={"<|tool_call_end|>": ANSWER})},
    openers={"<|tool_call_start|>": "calls"},
    marks=("<|tool_call_start|>",),
    spelling=_python("<|tool_call_start|>[", ", ", "]<|tool_call_end|>"),
)
OLMO3 = ToolFormat(
    {"calls": Body(partial(PythonCalls, in_list=False), on={"</function_calls>": ANSWER})},
    openers={"<function_calls>": "calls"},
    marks=("<function_calls>",),
    lacks=("<invoke",),
    spelling=_python("<function_calls>", "\n", "</function_calls>"),
)


def _pairs(opener: str, closer: str, quote: str, prefix: str) -> ToolFormat:
    """`call:f{k:v}` between two markers."""
    values = Parameters(
        "", f":{quote}", quote, between=",", before_json=":", after_json="", mark=quote
    )
    return ToolFormat(
        {
            "name": Header(
                rf"\s*{prefix}(?P<name>[^\s:{{(]+)\s*",
                on={"{": "arguments", "(": "arguments"},
            ),
            "arguments": Body(PairsShape(quote), then="end", keeps_marker=True, in_call=True),
            "end": Gap(on={closer: ANSWER, opener: "name"}),
        },
        openers={opener: "name"},
        tokens=(quote,),
        marks=(opener,),
        spelling=Spelling(f"{opener}call:", "{", f"}}{closer}", parameters=values),
    )


FUNCTIONGEMMA = _pairs("<start_function_call>", "<end_function_call>", "<escape>", "call:")
GEMMA4 = _pairs("<|tool_call>", "<tool_call|>", '<|"|>', "(?:call)?:?")
