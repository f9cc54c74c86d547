"""Tool formats whose arguments are elements, one for each parameter, with values as text."""

from __future__ import annotations

from typing import Literal

from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import (
    ANSWER,
    KEY,
    Body,
    Gap,
    Header,
    Parameters,
    Spelling,
    State,
    Targets,
    ToolFormat,
    Value,
)
from pagemill.render.formats.json_calls import JsonCall
from pagemill.render.formats.nested_elements import MARK, NestedElements

_WORD = r"\s*(?P<name>[^\s<>]+)\s*"
_ATTRIBUTE = r"\s*(?P<quote>[\"']?)(?P<{}>[^\"'>]+?)(?P=quote)\s*"
_NAME_ATTRIBUTE = _ATTRIBUTE.format("name")
_KEY_ATTRIBUTE = _ATTRIBUTE.format("key")


def _functions(
    opener: str, closer: str, trim: Literal["line", "none"] = "line", marks: tuple[str, ...] = ()
) -> ToolFormat:
    """`<function=f><parameter=k>v</parameter></function>`, several between two markers."""
    border = "\n" if trim == "line" else ""
    values = Parameters("<parameter=", f">{border}", f"{border}</parameter>\n")
    spelling = Spelling(
        f"{opener}\n<function=",
        ">\n",
        f"</function>\n{closer}",
        between="\n",
        parameters=values,
    )
    # Values are source code often, so what closes them by mistake has to begin a line.
    ends = {"</parameter>": "parameters", "\n<parameter=": "key", "\n</function>": "function"}
    return ToolFormat(
        {
            "function": Gap(on={"<function=": "name", closer: ANSWER}),
            "name": Header(_WORD, on={">": "parameters"}),
            "parameters": Gap(
                on={"<parameter=": "key", "</function>": "function", closer: ANSWER}, in_call=True
            ),
            "key": Header(r"\s*(?P<key>[^>]+?)\s*", on={">": "value"}, in_call=True),
            "value": Value(on=ends, trim=trim),
        },
        openers={opener: "function", "<function=": "name"},
        marks=marks,
        spelling=spelling,
    )


def _pairs(opener: str, closer: str, key: str, value: str) -> dict[str, State]:
    """States of `f<arg_key>k</arg_key><arg_value>v</arg_value>` up to `closer`, from `name` on."""
    return {
        "name": Header(_WORD, on={f"<{key}>": "key", closer: opener}),
        "key": Header(r"\s*(?P<key>.+?)\s*", on={f"</{key}>": "colon"}, in_call=True),
        "colon": Gap(on={f"<{value}>": "value"}, in_call=True),
        "value": Value(on={f"</{value}>": "pairs"}),
        "pairs": Gap(on={f"<{key}>": "key", closer: opener}, in_call=True),
    }


def _spelled_pairs(
    opener: str,
    closer: str,
    begin: str = "",
    end: str = "",
    pair: tuple[str, str] = ("arg_key", "arg_value"),
    behind: str = "",
) -> Spelling:
    """`behind`: what follows the name."""
    key, value = pair
    values = Parameters(f"<{key}>", f"</{key}><{value}>", f"</{value}>")
    return Spelling(opener, behind, closer, begin=begin, end=end, parameters=values)


def invoke_states(tag: str, target: str, closed: Targets) -> dict[str, State]:
    """States of one `<invoke name="f">`, from `name` on. `target`: the state behind it. `closed`:
    markers behind it that come too early, and where they lead."""
    invoke, parameter = tag.format("invoke"), tag.format("parameter")
    return {
        "name": Header(_NAME_ATTRIBUTE, on={">": "parameters"}),
        "parameters": Gap(
            on={f"<{parameter} name=": "key", f"</{invoke}>": target, **closed}, in_call=True
        ),
        "key": Header(
            r"\s*(?P<quote>[\"']?)(?P<key>[^\"'>]+?)(?P=quote)"
            r"(?:\s+string=\"(?P<type>true|false)\")?\s*",
            on={">": "value"},
            in_call=True,
        ),
        "value": Value(
            on={
                f"</{parameter}>": "parameters",
                f"\n<{parameter} name=": "key",
                f"\n</{invoke}>": target,
            },
            typing="declared" if "DSML" in tag else "schema",
            wrappers=("arguments", "input") if "DSML" in tag else (),
        ),
    }


def _invokes(
    openers: tuple[str, ...],
    closers: tuple[str, ...],
    tag: str = "{}",
    marks: tuple[str, ...] = (),
    lacks: tuple[str, ...] = (),
) -> ToolFormat:
    """`<invoke name="f"><parameter name="k">v</parameter></invoke>`, several between two markers.

    `tag`: how the names of elements are written.
    """
    invoke, parameter = tag.format("invoke"), tag.format("parameter")
    opener = f"<{invoke} name="
    declares = "DSML" in tag
    values = Parameters(
        f'<{parameter} name="',
        '" string="true">' if declares else '">',
        f"</{parameter}>\n",
        before_json='" string="false">' if declares else "",
    )
    spelling = Spelling(
        f'{opener}"',
        '">\n',
        f"</{invoke}>\n",
        begin=f"{openers[0]}\n",
        end=closers[0],
        parameters=values,
    )
    closed = dict.fromkeys(closers, ANSWER)
    return ToolFormat(
        {
            "invokes": Gap(on={opener: "name", "{": "object", **closed}),
            "object": Body(
                JsonCall(arguments=("arguments", "parameters")), then="invokes", keeps_marker=True
            ),
            **invoke_states(tag, "invokes", closed),
        },
        openers={**dict.fromkeys(openers, "invokes"), opener: "name"},
        marks=marks,
        lacks=lacks,
        spelling=spelling,
    )


QWEN3_CODER = _functions("<tool_call>", "</tool_call>", marks=("<tool_call>", "<function="))
MIMO = _functions("<tool_call>", "</tool_call>", trim="none")
SEED_OSS = _functions("<seed:tool_call>", "</seed:tool_call>", marks=("<seed:tool_call>",))

GLM45 = ToolFormat(
    dict(_pairs(ANSWER, "</tool_call>", "arg_key", "arg_value")),
    openers={"<tool_call>": "name"},
    marks=("<tool_call>", "<arg_key>"),
    lacks=("<tool_calls>", "<tool_sep>"),
    spelling=_spelled_pairs("<tool_call>", "</tool_call>", behind="\n"),
)


def hunyuan_v3(checkpoint: Checkpoint) -> ToolFormat:
    """Pairs as in GLM 4.5, behind a separator; the tags have the checkpoint's suffix."""
    tag = _suffixed(checkpoint)
    separator = f"<{tag.format('tool_sep')}>"
    return _hunyuan(
        tag,
        {"name": Header(_WORD, on={separator: "pairs", f"</{tag.format('tool_call')}>": "calls"})},
        separator,
        marks=(separator,),
    )


def hunyuan_v4(checkpoint: Checkpoint) -> ToolFormat:
    """The same without a separator."""
    tag = _suffixed(checkpoint)
    key, separator = f"<{tag.format('arg_key')}>", f"<{tag.format('tool_sep')}>"
    return _hunyuan(tag, {}, "", marks=(key,), lacks=(separator,))


def _suffixed(checkpoint: Checkpoint) -> str:
    return "{}" + checkpoint.suffix("tool_calls").replace("{", "{{").replace("}", "}}")


def _hunyuan(
    tag: str,
    states: dict[str, State],
    behind: str,
    marks: tuple[str, ...],
    lacks: tuple[str, ...] = (),
) -> ToolFormat:
    """`tag`: how the names of elements are written. `behind`: what follows a tool's name."""
    opener, closer = f"<{tag.format('tool_calls')}>", f"</{tag.format('tool_calls')}>"
    begin, end = f"<{tag.format('tool_call')}>", f"</{tag.format('tool_call')}>"
    key, value = tag.format("arg_key"), tag.format("arg_value")
    return ToolFormat(
        {
            "calls": Gap(on={begin: "name", closer: ANSWER}),
            **_pairs("calls", end, key, value),
            **states,
        },
        openers={opener: "calls"},
        marks=(opener, *marks),
        lacks=lacks,
        spelling=_spelled_pairs(begin, end, opener, closer, (key, value), behind),
    )


K2_HORIZON = ToolFormat(
    {
        "calls": Gap(on={"<ifm|tool_call>": "call", "</ifm|tool_calls>": ANSWER}),
        "call": Gap(on={"{": "object"}, otherwise="name"),
        "object": Body(JsonCall(), then="end", keeps_marker=True),
        "end": Gap(on={"</ifm|tool_call>": "calls"}),
        **_pairs("calls", "</ifm|tool_call>", "ifm|arg_key", "ifm|arg_value"),
        "colon": Gap(on={"<ifm|arg_type>": "type", "<ifm|arg_value>": "value"}, in_call=True),
        "type": Header(r"(?P<type>.*)", on={"</ifm|arg_type>": "colon"}, in_call=True),
    },
    openers={"<ifm|tool_calls>": "calls"},
    marks=("<ifm|tool_calls>",),
    spelling=_spelled_pairs(
        *("<ifm|tool_call>", "</ifm|tool_call>", "<ifm|tool_calls>", "</ifm|tool_calls>"),
        pair=("ifm|arg_key", "ifm|arg_value"),
    ),
)
MINICPM5 = ToolFormat(
    {
        "name": Header(_NAME_ATTRIBUTE, on={">": "parameters"}),
        "parameters": Gap(
            on={"<param name=": "key", "<paramname=": "key", "</function>": ANSWER}, in_call=True
        ),
        "key": Header(_KEY_ATTRIBUTE, on={">": "value"}, in_call=True),
        "value": Value(on={"</param>": "parameters"}),
    },
    openers={"<function name=": "name", "<functionname=": "name"},
    marks=("<function name=", "<param name="),
    spelling=Spelling(
        '<function name="',
        '">',
        "</function>",
        parameters=Parameters('<param name="', '">', "</param>"),
    ),
)

MINIMAX_M2 = _invokes(
    *(("<minimax:tool_call>",), ("</minimax:tool_call>",)), marks=("<minimax:tool_call>",)
)
MINIMAX_M3 = ToolFormat(
    {
        "invokes": Gap(on={f"{MARK}<invoke name=": "name", f"{MARK}</tool_call>": ANSWER}),
        "name": Header(_NAME_ATTRIBUTE, on={">": "arguments"}),
        "arguments": Body(NestedElements, on={f"{MARK}</invoke>": "invokes"}, in_call=True),
    },
    openers={f"{MARK}<tool_call>": "invokes"},
    marks=(MARK,),
    spelling=Spelling(
        f'{MARK}<invoke name="',
        '">',
        f"{MARK}</invoke>\n",
        begin=f"{MARK}<tool_call>\n",
        end=f"{MARK}</tool_call>",
        parameters=Parameters(f"{MARK}<", ">", f"{MARK}</{KEY}>", mark=MARK),
    ),
)
DOTS = _invokes(
    *(("<dots_function_call>",), ("</dots_function_call>",)), marks=("<dots_function_call>",)
)
STEP3 = ToolFormat(
    {
        "calls": Gap(on={"<｜tool_call_begin｜>": "type", "<｜tool_calls_end｜>": ANSWER}),
        "type": Header(r"\s*\w*\s*", on={"<｜tool_sep｜>": "invoke"}),
        "invoke": Gap(on={"<steptml:invoke name=": "name"}),
        **invoke_states("steptml:{}", "end", {"<｜tool_call_end｜>": "calls"}),
        "end": Gap(on={"<｜tool_call_end｜>": "calls", "<｜tool_calls_end｜>": ANSWER}),
    },
    openers={"<｜tool_calls_begin｜>": "calls", "<｜tool_call_begin｜>": "type"},
    marks=("steptml:invoke",),
    spelling=Spelling(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="',
        '">\n',
        "</steptml:invoke><｜tool_call_end｜>",
        begin="<｜tool_calls_begin｜>",
        end="<｜tool_calls_end｜>",
        parameters=Parameters('<steptml:parameter name="', '">', "</steptml:parameter>\n"),
    ),
)
DEEPSEEK_V32 = _invokes(
    ("<｜DSML｜function_calls>",),
    ("</｜DSML｜function_calls>",),
    tag="｜DSML｜{}",
    marks=("<｜DSML｜function_calls>",),
)
DEEPSEEK_V4 = _invokes(
    ("<｜DSML｜tool_calls>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"),
    ("</｜DSML｜tool_calls>", "</｜DSML｜toolcalls>", "</｜DSML｜tool>"),
    tag="｜DSML｜{}",
    marks=("<｜DSML｜tool_calls>",),
)
DEEPSEEK_V41 = _invokes(
    ("<｜DSML｜ calls>",), ("</｜DSML｜ calls>",), tag="｜DSML｜ {}", marks=("<｜DSML｜ calls>",)
)
