"""The formats of DeepSeek V4 and V4.1."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.events import Event, Message, Piece
from pagemill.render.output_machine import Formats
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.render.renderers.table import RENDERERS, load
from pagemill.render.template_wire import RenderRequest

BEGIN = "<｜begin▁of▁sentence｜>"
END = "<｜end▁of▁sentence｜>"
HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "Hi.", "reasoning_content": "hmm"}
SUM = {"role": "user", "content": "1+1=?"}
CALLS = [
    {"id": "1", "function": {"name": "f", "arguments": '{"city": "Paris", "days": [1]}'}},
    {"id": "2", "function": {"name": "g", "arguments": "{"}},
]
CALLING = {"role": "assistant", "content": "", "reasoning": "Look.", "tool_calls": CALLS}
RESULTS = [{"role": "tool", "tool_call_id": n, "content": f"r{n}"} for n in ("2", "1")]
CALLED = """

<｜DSML｜tool_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
<｜DSML｜parameter name="days" string="false">[1]</｜DSML｜parameter>
</｜DSML｜invoke>
<｜DSML｜invoke name="g">
<｜DSML｜parameter name="arguments" string="true">{</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>"""
RESULT = "<｜User｜><tool_result>r1</tool_result>\n\n<tool_result>r2</tool_result>"
TOOL = {"type": "function", "function": {"name": "f", "description": "é {block}"}}
EFFORT = "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)"


def _render(
    messages: list[dict[str, Any]], tools: Any = None, mode: str = "deepseek_v4", **variables: Any
) -> str:
    request = RenderRequest(
        messages=messages,
        tools=tools,
        add_generation_prompt=variables.pop("add_generation_prompt", True),
        continue_final_message=False,
        variables=variables,
        trust_control_tokens=False,
    )
    return load(RENDERERS[mode], Path(), [BEGIN, "<｜User｜>"]).render(request).text


def test_earlier_turns_show_no_reasoning() -> None:
    messages = [HELLO, ANSWER, SUM]
    turns = f"{BEGIN}<｜User｜>hello<｜Assistant｜></think>Hi.{END}<｜User｜>1+1=?<｜Assistant｜>"
    assert _render(messages) == f"{turns}<think>"
    assert _render(messages, thinking=False) == f"{turns}</think>"
    assert _render(messages, reasoning_effort="none") == f"{turns}</think>"
    assert _render(messages, add_generation_prompt=False) == turns.removesuffix("<｜Assistant｜>")


def test_all_reasoning_is_shown_with_tools() -> None:
    text = _render([HELLO, ANSWER, SUM], [TOOL])
    assert text.endswith(
        f"<｜User｜>hello<｜Assistant｜><think>hmm</think>Hi.{END}<｜User｜>1+1=?<｜Assistant｜><think>"
    )


def test_results_are_the_users_in_the_order_of_their_calls() -> None:
    messages = [HELLO, CALLING, *RESULTS, SUM]
    begin = f"{BEGIN}<｜User｜>hello<｜Assistant｜>"
    chat = _render(messages, enable_thinking=False)
    assert chat == (f"{begin}</think>{CALLED}{END}{RESULT}\n\n1+1=?<｜Assistant｜></think>")
    thinking = _render(messages[:-1], [TOOL])
    assert thinking.endswith(
        f"<｜User｜>hello<｜Assistant｜><think>Look.</think>{CALLED}{END}{RESULT}<｜Assistant｜><think>"
    )


def test_tools_follow_the_system_message() -> None:
    system = {"role": "system", "content": "Be brief."}
    for messages, begin in (([system, HELLO], "Be brief."), ([HELLO], "")):
        text = _render(messages, [TOOL])
        assert text.startswith(f"{BEGIN}{begin}\n\n## Tools\n\n")
        schemas = text.partition("Schemas\n\n")[2].partition("\n\nYou MUST")[0]
        assert json.loads(schemas) == TOOL["function"]
        assert text.endswith("to invoke tool calls.\n<｜User｜>hello<｜Assistant｜><think>")


def test_efforts() -> None:
    most = _render([HELLO], reasoning_effort="max")
    assert most.startswith(f"{BEGIN}Reasoning Effort: Absolute maximum with no shortcuts")
    assert _render([HELLO], reasoning_effort="high") == _render([HELLO])
    assert _render([HELLO], reasoning_effort="max", thinking=False) == _render(
        [HELLO], thinking=False
    )
    for effort in ("most", 5.5, 0, 101, True, None):
        with pytest.raises(RenderError, match="effort is one of none, minimal, low"):
            _render([HELLO], reasoning_effort=effort)
    with pytest.raises(RenderError, match="thinking must be true or false"):
        _render([HELLO], thinking="yes")


SCHEMA = {"type": "object", "properties": {"é": {"type": "integer"}}}


@pytest.mark.parametrize("mode", ["deepseek_v32", "deepseek_v4", "deepseek_v41"])
def test_the_schema_of_answers_follows_the_system_message(mode: str) -> None:
    wanted = {"name": "x", "schema": SCHEMA}
    words = (
        "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
        f"{json.dumps(SCHEMA, ensure_ascii=False)}<｜User｜>hello<｜Assistant｜>"
    )
    for tools in (None, [TOOL]):
        assert words in _render([HELLO], tools, mode=mode, response_format=wanted)
    assert "Response Format" not in _render([HELLO], mode=mode, response_format=None)
    with pytest.raises(RenderError, match="response_format has no schema"):
        _render([HELLO], mode=mode, response_format="x")


def test_v41() -> None:
    mode = "deepseek_v41"
    system = {"role": "system", "content": "Be brief."}
    effort = EFFORT.format(50)
    begin = f"{BEGIN}<｜System｜>{effort}\n\n"
    assert _render([HELLO], mode=mode) == f"{begin}<｜User｜>hello<｜Assistant｜><think>"
    assert _render([system, HELLO, ANSWER, system], mode=mode) == (
        f"{begin}Be brief.<｜User｜>hello<｜Assistant｜></think>Hi.{END}"
        "<｜System｜>Be brief.<｜Assistant｜><think>"
    )
    assert _render([HELLO], mode=mode, thinking=False) == (
        f"{BEGIN}<｜User｜>hello<｜Assistant｜></think>"
    )
    for given, number in (("low", 25), ("xhigh", 75), (7, 7)):
        assert EFFORT.format(number) in _render([HELLO], mode=mode, reasoning_effort=given)
    called = _render([HELLO, CALLING, *RESULTS], mode=mode, thinking=False)
    tags = CALLED.replace("｜DSML｜tool_calls", "｜DSML｜ calls")
    for name in ("invoke", "parameter"):
        tags = tags.replace(f"｜DSML｜{name}", f"｜DSML｜ {name}")
    assert called == (
        f"{BEGIN}<｜User｜>hello<｜Assistant｜></think>{tags}{END}{RESULT}<｜Assistant｜></think>"
    )


@pytest.mark.parametrize("mode", ["deepseek_v32", "deepseek_v4", "deepseek_v41"])
def test_calls_are_read_back_by_the_format(mode: str) -> None:
    calling = {**CALLING, "tool_calls": CALLS[:1] * 2, "content": "I look."}
    text = _render([HELLO, calling], mode=mode, thinking=True, add_generation_prompt=False)
    output = text.partition("<｜Assistant｜>")[2].removesuffix(END)
    formats = Formats.of("", RENDERERS[mode].formats, lambda _: None)
    parser, events = OutputParser(formats, ParserOptions(reasoning=True, tools=True)), list[Event]()
    parser.push(Piece(output, 5, False), events)
    parser.finish(events)
    message = Message()
    for event in events:
        message.add(event)
    assert (message.reasoning, message.text) == ("Look.", "I look.")
    calls = [(call.name, json.loads(call.arguments)) for call in message.calls]
    assert calls == [("f", {"city": "Paris", "days": [1]})] * 2
