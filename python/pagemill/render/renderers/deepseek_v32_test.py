"""The format of DeepSeek V3.2.

Source of the first text: the chat of the model card, https://huggingface.co/deepseek-ai/DeepSeek-V3.2.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.renderers.table import RENDERERS, load
from pagemill.render.template_wire import RenderRequest

BEGIN = "<｜begin▁of▁sentence｜>"
HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "Hello! I am DeepSeek.", "reasoning_content": "hmm"}
SUM = {"role": "user", "content": "1+1=?"}
CALLS = [
    {"id": "1", "function": {"name": "f", "arguments": '{"city": "Paris", "days": [1]}'}},
    {"id": "2", "function": {"name": "g", "arguments": "{"}},
]
CALLING = {"role": "assistant", "content": "", "reasoning": "Look.", "tool_calls": CALLS}
RESULTS = [{"role": "tool", "tool_call_id": n, "content": f"r{n}"} for n in ("1", "2")]
CALLED = """\


<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
<｜DSML｜parameter name="days" string="false">[1]</｜DSML｜parameter>
</｜DSML｜invoke>
<｜DSML｜invoke name="g">
<｜DSML｜parameter name="arguments" string="true">{</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls><｜end▁of▁sentence｜>

<function_results>
<result>r1</result>
<result>r2</result>
</function_results>"""


def _render(messages: list[dict[str, Any]], tools: Any = None, **variables: Any) -> str:
    request = RenderRequest(
        messages=messages,
        tools=tools,
        add_generation_prompt=True,
        continue_final_message=False,
        variables=variables,
        trust_control_tokens=False,
    )
    return load(RENDERERS["deepseek_v32"], Path(), [BEGIN, "<｜User｜>"]).render(request).text


def test_earlier_turns_show_no_reasoning() -> None:
    messages = [HELLO, ANSWER, SUM]
    turns = (
        f"{BEGIN}<｜User｜>hello<｜Assistant｜></think>Hello! I am DeepSeek.<｜end▁of▁sentence｜>"
        "<｜User｜>1+1=?<｜Assistant｜>"
    )
    assert _render(messages, thinking=True) == f"{turns}<think>"
    assert _render(messages) == f"{turns}</think>"


def test_reasoning_since_the_last_question_is_shown() -> None:
    messages = [HELLO, CALLING, *RESULTS]
    begin = f"{BEGIN}<｜User｜>hello<｜Assistant｜>"
    thinking = _render(messages, enable_thinking=True)
    assert thinking == f"{begin}<think>Look.</think>{CALLED}\n\n<think>"
    assert _render(messages) == f"{begin}</think>{CALLED}\n\n</think>"
    spoken = {"role": "assistant", "content": "Sunny."}
    assert _render([*messages, spoken, SUM]) == (
        f"{begin}</think>{CALLED}\n\n</think>Sunny.<｜end▁of▁sentence｜>"
        "<｜User｜>1+1=?<｜Assistant｜></think>"
    )


def test_a_developers_message_is_the_users() -> None:
    assert _render([{"role": "developer", "content": "hello"}]) == (
        f"{BEGIN}<｜User｜>\n\n# The user's message is: hello<｜Assistant｜></think>"
    )


def test_tools_follow_the_system_message() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "é {x}"}}
    text = _render([{"role": "system", "content": "Be brief."}, HELLO], [tool])
    assert text.startswith(f"{BEGIN}Be brief.\n\n## Tools\n\n")
    assert 'writing a "<｜DSML｜function_calls>" block' in text
    assert '<｜DSML｜invoke name="$FUNCTION_NAME2">' in text
    assert text.endswith("</functions>\n<｜User｜>hello<｜Assistant｜></think>")
    assert _render([HELLO], [tool]).startswith(f"{BEGIN}\n\n## Tools\n\n")
    lines = text.partition("<functions>\n")[2].partition("\n</functions>")[0]
    assert json.loads(lines) == tool["function"]
    assert "é" in lines


def test_switches() -> None:
    with pytest.raises(RenderError, match="thinking must be true or false"):
        _render([HELLO], thinking="yes")
    with pytest.raises(RenderError, match="enable_thinking and thinking must"):
        _render([HELLO], thinking=True, enable_thinking=False)
