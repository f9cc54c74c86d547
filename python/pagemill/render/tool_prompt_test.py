"""Tools of models whose chat template knows none."""

import json
from typing import Any

from pagemill.render.chat_template import ChatTemplate

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}({{ part.text }}){% endfor %}{% endif %}{% endfor %}"
)
OWN = "{{ tools | length }}" + PLAIN
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "now", "arguments": '{"utc": true}'}}
USER = {"role": "user", "content": "Hi"}


def render(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, source: str = PLAIN
) -> str:
    template = ChatTemplate(source, {})
    return template.render([template.prepared(m) for m in messages], tools, False, {})


def test_tools_are_described_in_a_system_message() -> None:
    prompt = render([USER], [TOOL, TOOL])
    assert prompt.startswith("[system]You can call functions.")
    assert prompt.endswith("[user]Hi")
    lines = prompt.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    # Not "<tools>" of the sentence before.
    assert [json.loads(line) for line in lines if line.startswith("{")] == [TOOL, TOOL]
    assert '{"name": "<name of the function>", "arguments": {' in prompt


def test_they_follow_a_system_message() -> None:
    prompt = render([{"role": "system", "content": "Be brief."}, USER], [TOOL])
    assert prompt.startswith("[system]Be brief.\n\nYou can call functions.")
    parts = [{"type": "text", "text": "Be brief."}]
    prompt = render([{"role": "system", "content": parts}, USER], [TOOL], PARTS)
    assert prompt.startswith("[system](Be brief.)(You can call functions.")


def test_calls_and_results_are_text() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "Wait.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "12:00"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "12:01"}]},
    ]
    call = '<tool_call>\n{"name": "now", "arguments": {"utc": true}}\n</tool_call>'
    assert render(messages, None) == (
        f"[user]Hi[assistant]Wait.\n\n{call}\n{call}"
        "[user]<tool_response>\n12:00\n</tool_response>"
        f"[assistant]{call}[user]<tool_response>\n12:01\n</tool_response>"
    )


def test_braces_in_tools_are_data() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "{x} {{y}} %s"}}
    assert "{x} {{y}} %s" in render([USER], [tool])


def test_a_template_that_knows_tools_writes_them() -> None:
    assert render([USER], [TOOL], OWN) == "1[user]Hi"


def test_malformed_calls_do_no_harm() -> None:
    for calls in ([5], [{}], [{"function": "x"}], [{"function": {"arguments": 3}}]):
        render([{"role": "assistant", "content": "", "tool_calls": calls}], None)
