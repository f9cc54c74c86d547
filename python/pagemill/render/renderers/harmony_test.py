"""Harmony's prompts against the examples of its description.

Source of the texts: https://cookbook.openai.com/articles/openai-harmony.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.renderers.table import RENDERERS, load
from pagemill.render.template_wire import RenderRequest

USER = {"role": "user", "content": "What is the weather like in SF?"}
LOCATION = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
FORMAT = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}
TOOLS = [
    {"function": {"name": "get_location", "description": "Gets the location of the user."}},
    {
        "function": {
            "name": "get_current_weather",
            "description": "Gets the current weather in the provided location.",
            "parameters": {
                "type": "object",
                "properties": {"location": LOCATION, "format": FORMAT},
                "required": ["location"],
            },
        }
    },
]
CALL = {
    "id": "c1",
    "function": {"name": "get_weather", "arguments": '{"location": "San Francisco"}'},
}
CALLING = {
    "role": "assistant",
    "content": None,
    "reasoning": "Need to use function get_weather.",
    "tool_calls": [CALL],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"sunny": true, "temperature": 20}'}
SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\nCurrent date: 2025-06-28\n\nReasoning: medium\n\n"
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
DEVELOPER = """\
<|start|>developer<|message|># Instructions

Use a friendly tone.

# Tools

## functions

namespace functions {

// Gets the location of the user.
type get_location = () => any;

// Gets the current weather in the provided location.
type get_current_weather = (_: {
// The city and state, e.g. San Francisco, CA
location: string,
format?: "celsius" | "fahrenheit", // default: celsius
}) => any;

} // namespace functions<|end|>"""
QUESTION = "<|start|>user<|message|>What is the weather like in SF?<|end|>"
THOUGHT = "<|start|>assistant<|channel|>analysis<|message|>Need to use function get_weather.<|end|>"
CALLED = (
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"location":"San Francisco"}<|call|>'
    "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"
    '{"sunny": true, "temperature": 20}<|end|>'
)


def _render(messages: list[dict[str, Any]], tools: Any = None, **change: Any) -> str:
    fields: dict[str, Any] = {
        "add_generation_prompt": True,
        "continue_final_message": False,
        "variables": {},
        "trust_control_tokens": False,
        **change,
    }
    renderer = load(RENDERERS["harmony"], Path(), ["<|start|>", "<|end|>", "<|message|>"])
    text = renderer.render(RenderRequest(messages=messages, tools=tools, **fields)).text
    today = re.compile(r"(?<=\nCurrent date: )\d{4}-\d\d-\d\d(?=\n)")
    assert len(today.findall(text)) == 1
    return today.sub("2025-06-28", text)


def _after_system(messages: list[dict[str, Any]]) -> str:
    text = _render(messages)
    assert text.startswith(f"{SYSTEM}<|end|>")
    return text.removeprefix(f"{SYSTEM}<|end|>")


def test_the_documented_prompt_with_tools() -> None:
    messages = [{"role": "system", "content": "Use a friendly tone."}, USER]
    calls = "\nCalls to these tools must go to the commentary channel: 'functions'.<|end|>"
    assert _render(messages, TOOLS) == SYSTEM + calls + DEVELOPER + QUESTION + "<|start|>assistant"


def test_reasoning_is_shown_until_it_led_to_an_answer() -> None:
    turns = [USER, CALLING, RESULT]
    assert _after_system(turns) == QUESTION + THOUGHT + CALLED + "<|start|>assistant"
    answer = {"role": "assistant", "content": "20 degrees.", "reasoning": "Say it."}
    final = "<|start|>assistant<|channel|>final<|message|>20 degrees.<|end|>"
    later = [*turns, answer, USER]
    want = QUESTION + CALLED + final + QUESTION + "<|start|>assistant"
    assert _after_system(later) == want


def test_what_is_said_before_calls_is_commentary() -> None:
    text = _after_system([USER, {**CALLING, "content": "One moment."}, RESULT])
    said = "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|>"
    assert f"{THOUGHT}{said}<|start|>assistant<|channel|>commentary to=" in text


def test_effort_and_identity() -> None:
    text = _render([USER], variables={"reasoning_effort": "high", "model_identity": "You are X."})
    assert text.startswith("<|start|>system<|message|>You are X.\n")
    assert "\n\nReasoning: high\n\n" in text
    with pytest.raises(RenderError, match="one of low, medium, high") as refused:
        _render([USER], variables={"reasoning_effort": "most"})
    assert refused.value.param == "reasoning_effort"
    with pytest.raises(RenderError, match="must be text"):
        _render([USER], variables={"model_identity": 5})


def test_an_answer_is_continued() -> None:
    begun = [USER, {"role": "assistant", "content": "It is"}]
    text = _render(begun, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("<|start|>assistant<|channel|>final<|message|>It is")


def test_results_need_their_call() -> None:
    with pytest.raises(RenderError, match="belongs to no call"):
        _render([USER, CALLING, {**RESULT, "tool_call_id": "c2"}])
    assert "functions.f to=assistant" in _render([{"role": "tool", "name": "f", "content": "1"}])


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "string | number"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array"}, "Array<any>"),
        ({"type": "object"}, "{\n    }"),
        ({"properties": {"b": {"type": "boolean"}}}, "{\n    b?: boolean,\n    }"),
        ({"type": ["object", "array"], "items": {"type": "string"}}, "{\n    } | string[]"),
        ({"type": "array", "items": {"type": ["object", "null"]}}, "({\n    } | null)[]"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"type": []}, "any"),
        ({}, "any"),
        ({"type": 5, "items": 5}, "any"),
    ],
)
def test_types(schema: dict[str, Any], written: str) -> None:
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    text = _render([USER], [{"function": {"name": "f", "parameters": parameters}}])
    assert f"type f = (_: {{\nx: {written},\n}}) => any;" in text


def test_small_schemas_make_no_large_prompt() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(25):
        kinds = ["array", "array", "object", *map(str, range(20))]
        schema = {"type": kinds, "items": schema, "properties": {"x": {"type": kinds}}}
    parameters = {"type": "object", "properties": {"x": schema}}
    text = _render([USER], [{"function": {"name": "f", "parameters": parameters}}])
    assert len(text) < 10_000


def test_deep_schemas_are_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    parameters = {"type": "object", "properties": {"x": schema}}
    with pytest.raises(RenderError, match="nested too deep"):
        _render([USER], [{"function": {"name": "f", "parameters": parameters}}])


def test_definitions_are_those_of_the_library() -> None:
    """The text is what the package openai-harmony 0.0.8 writes."""
    nested = {"type": "string", "enum": ["a", "b"], "default": "a"}
    variants = [
        {"type": "object", "properties": {"x": {"type": "string", "description": "dd"}}},
        {"type": "number", "description": "d2", "default": 3},
    ]
    titled = {"title": "T", "type": "string", "description": "x", "examples": ["e1", "e2"]}
    parameters = {
        "type": "object",
        "description": "top",
        "properties": {
            "o": {"type": "object", "properties": {"y": {"properties": {"z": nested}}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"n": {}}}},
            "v": {"oneOf": variants, "default": "q", "description": "about"},
            "t": titled,
            "u": {"type": "string", "nullable": True, "default": None},
        },
        "required": ["u"],
    }
    text = _render([USER], [{"function": {"name": "f", "parameters": parameters}}])
    written = text.partition("namespace functions {\n\n")[2].partition("\n\n}")[0]
    assert (
        written
        == """\
type f = (_: // top
{
o?: {
    y?: {
        z?: "a" | "b", // default: a
        },
    },
l?: {
    n?: any,
    }[],
// about
// default: "q"
v?:
 | {
   // dd
   x?: string,
   }
 | number // d2 default: 3
,
// T
//
// x
// Examples:
// - "e1"
// - "e2"
t?: string,
u: string | null, // default: null
}) => any;"""
    )


def test_the_schema_of_answers_is_in_the_developers_message() -> None:
    wanted = {"name": "shopping_list", "description": "What to buy", "schema": {"type": "object"}}
    system = {"role": "system", "content": "Be brief."}
    text = _render([system, USER], variables={"response_format": wanted})
    assert (
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Response Formats\n\n"
        '## shopping_list\n\n// What to buy\n{"type": "object"}<|end|><|start|>user'
    ) in text
    text = _render([USER], variables={"response_format": {"schema": True}})
    assert "<|start|>developer<|message|># Response Formats\n\n## answer\n\ntrue<|end|>" in text
    with pytest.raises(RenderError, match="response_format has no schema"):
        _render([USER], variables={"response_format": {"name": "x"}})
