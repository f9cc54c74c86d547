"""Formats of whole outputs: messages, or channels, whose headers say what they are."""

from __future__ import annotations

from pagemill.render.formats.element_formats import invoke_states
from pagemill.render.formats.format import (
    ANSWER,
    REASONING,
    Body,
    Fork,
    Gap,
    Header,
    MessageFormat,
    Said,
    Spelling,
    Value,
)
from pagemill.render.formats.json_calls import JsonArguments, JsonCall

_HARMONY_ENDS = {"<|end|>": "between", "<|return|>": "between", "<|start|>": "header"}
HARMONY = MessageFormat(
    {
        "header": Fork(
            "<|message|>",
            (
                (r".*\bto=(?:functions\.)?(?P<name>[\w.-]+).*", "arguments"),
                (r".*<\|channel\|>\s*analysis.*", REASONING),
                (r".*", ANSWER),
            ),
            on={"<|start|>": "header"},
        ),
        "arguments": Body(JsonArguments, on={**_HARMONY_ENDS, "<|call|>": "between"}, in_call=True),
        "between": Gap(on={"<|start|>": "header", "<|channel|>": "header"}),
        REASONING: Said(on=_HARMONY_ENDS, is_reasoning=True),
        ANSWER: Said(on=_HARMONY_ENDS),
    },
    first="header",
    prompt_ends={
        "<|channel|>analysis<|message|>": REASONING,
        "<|channel|>final<|message|>": ANSWER,
    },
    tokens=("<|channel|>", "<|constrain|>"),
    marks=("<|channel|>analysis", "<|start|>"),
    spelling=Spelling(
        "<|channel|>commentary to=functions.",
        " <|constrain|>json<|message|>",
        is_single=True,
        thought=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        answer="<|channel|>final<|message|>",
    ),
)
"""gpt-oss. The channel's token within a header is part of its text. A call ends the output."""

_INKLING_ENDS = {
    "<|end_message|>": "header",
    "<|content_model_end_sampling|>": "header",
    "<|message_model|>": "header",
}
INKLING = MessageFormat(
    {
        "header": Header(
            r".*",
            on={
                "<|message_model|>": "header",
                "<|content_thinking|>": REASONING,
                "<|content_text|>": ANSWER,
                "<|content_invoke_tool_json|>": "call",
                "<|content_invoke_tool_text|>": ANSWER,
                "<|content_tool_error|>": ANSWER,
            },
        ),
        "call": Body(JsonCall(arguments=("args",)), on=_INKLING_ENDS),
        REASONING: Said(on=_INKLING_ENDS, is_reasoning=True),
        ANSWER: Said(on=_INKLING_ENDS),
    },
    first="header",
    prompt_ends={"<|content_thinking|>": REASONING, "<|content_text|>": ANSWER},
    marks=("<|message_model|>",),
)

_KIMI_ENDS = {"<|open|>": "open", "<|close|>": "close"}
KIMI_K3 = MessageFormat(
    {
        "open": Fork(
            "<|sep|>",
            (
                (r"\s*think\b.*", REASONING),
                (r"\s*tools\b.*", "tools"),
                (r"\s*call\b.*\btool=\"(?P<name>[^\"]+)\".*", "call"),
                (r".*", ANSWER),
            ),
        ),
        "close": Header(r".*", on={"<|sep|>": "between"}),
        "between": Gap(on=_KIMI_ENDS, otherwise=ANSWER),
        "tools": Gap(on=_KIMI_ENDS),
        "call": Gap(on={"<|open|>": "argument", "<|close|>": "end"}, in_call=True),
        "argument": Header(
            r"\s*argument\b.*\bkey=\"(?P<key>[^\"]*)\"(?:\s+type=\"(?P<type>\w*)\")?.*",
            on={"<|sep|>": "value"},
            in_call=True,
        ),
        "value": Value(on={"<|close|>": "argument end"}, typing="declared"),
        "argument end": Header(r".*", on={"<|sep|>": "call"}, in_call=True),
        "end": Header(r".*", on={"<|sep|>": "tools"}),
        REASONING: Said(on=_KIMI_ENDS, is_reasoning=True),
        ANSWER: Said(on=_KIMI_ENDS),
    },
    first="between",
    prompt_ends={"<|open|>think<|sep|>": REASONING, "<|open|>response<|sep|>": ANSWER},
    marks=("<|open|>", "<|sep|>", "<|close|>"),
)

_MUSE_ENDS = {"<|eom|>": "between", "<|eot|>": "between", "<|start|>": "header"}
MUSE_GLIMMER = MessageFormat(
    {
        "header": Fork(
            "<|message|>",
            (
                (r".*\bto=self\b.*", REASONING),
                (r".*\bto=user\b.*", ANSWER),
                (r".*\bto=\S+.*", "calls"),
                (r".*", ANSWER),
            ),
            on={"<|start|>": "header"},
        ),
        "between": Gap(on={"<|start|>": "header"}),
        "calls": Gap(
            on={
                "<atem:function_calls>": "calls",
                "<atem:invoke name=": "name",
                "</atem:function_calls>": "calls",
                **_MUSE_ENDS,
            }
        ),
        **invoke_states("atem:{}", "calls", _MUSE_ENDS),
        REASONING: Said(on=_MUSE_ENDS, is_reasoning=True),
        ANSWER: Said(on=_MUSE_ENDS),
    },
    first="header",
    prompt_ends={" to=self<|message|>": REASONING, " to=user<|message|>": ANSWER},
    marks=("<atem:", "<|eom|>"),
)
