"""The format of DeepSeek V3.2, whose models come without a Jinja template.

Source: the markers that its tokenizer has, and docs/output_formats.md for calls. Reasoning is shown
for the turns since the last message of the user; earlier turns begin with the end of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
from pagemill.render.renderers.base import Chat

_BEGIN = "<｜begin▁of▁sentence｜>"
_END = "<｜end▁of▁sentence｜>"
_USER = "<｜User｜>"
_ASSISTANT = "<｜Assistant｜>"
_THINK = "<think>"
_END_THINK = "</think>"
_SIGIL = "｜DSML｜"

_TOOLS = f"""\
## Tools

You can call functions. Each line between <functions> and </functions> describes one as JSON Schema:
<functions>
{{tools}}
</functions>

To call functions, end your answer with one block of this form, with one invoke for each call:
<{_SIGIL}function_calls>
<{_SIGIL}invoke name="$FUNCTION_NAME">
<{_SIGIL}parameter name="$PARAMETER_NAME" string="true|false">$VALUE</{_SIGIL}parameter>
</{_SIGIL}invoke>
</{_SIGIL}function_calls>
A value with string="true" is the text as it is. Any other value is JSON, with string="false".
Results come between <function_results> and </function_results>."""


def write(chat: Chat) -> str:
    """Returns the prompt of `chat`.

    Raises:
      RenderError: a switch is not true or false, or two of them differ.
    """
    thinks = _thinks(chat.variables)
    messages = list(chat.messages)
    system: list[str] = []
    while messages and messages[0]["role"] == "system":
        system.append(messages.pop(0)["content"])
    if chat.tools:
        lines = "\n".join(_json(_definition(tool)) for tool in chat.tools)
        system.append(_TOOLS.format(tools=lines))
    parts = [_BEGIN, "\n\n".join(filter(None, system)), *_turns(messages, thinks)]
    if chat.add_generation_prompt:
        behind_result = bool(messages) and messages[-1]["role"] == "tool"
        parts += ["" if behind_result else _ASSISTANT, _opener(thinks, behind_result)]
    return "".join(parts)


def _thinks(variables: Mapping[str, Any]) -> bool:
    given = {name: variables[name] for name in sorted(variables)}
    if not all(isinstance(value, bool) for value in given.values()) or len({*given.values()}) > 1:
        raise RenderError(
            f"{' and '.join(given)} must be true or false, and the same", "chat_template_kwargs"
        )
    return any(given.values())


def _turns(messages: Sequence[Mapping[str, Any]], thinks: bool) -> Iterator[str]:
    users = [n for n, message in enumerate(messages) if message["role"] in ("user", "developer")]
    last_user = users[-1] if users else -1
    for number, message in enumerate(messages):
        before = messages[number - 1]["role"] if number else ""
        after = messages[number + 1]["role"] if number + 1 < len(messages) else ""
        if message["role"] == "assistant":
            yield _assistant(message, before, thinks and number > last_user)
        elif message["role"] == "tool":
            yield "" if before == "tool" else "\n\n<function_results>"
            yield f"\n<result>{message['content']}</result>"
            yield "" if after == "tool" else "\n</function_results>"
        elif message["role"] == "system":
            yield message["content"]
        else:
            yield f"{_USER}{message['content']}"


def _assistant(message: Mapping[str, Any], before: str, thinks: bool) -> str:
    behind_result = before == "tool"
    parts = ["" if behind_result else _ASSISTANT, _opener(thinks, behind_result)]
    if thinks:
        reasoning = message.get("reasoning")
        parts += [reasoning if isinstance(reasoning, str) else "", _END_THINK]
    parts.append(message["content"])
    if calls := as_array(message.get("tool_calls")):
        blocks = "\n".join(map(_call, calls))
        parts.append(f"\n\n<{_SIGIL}function_calls>\n{blocks}\n</{_SIGIL}function_calls>")
    return "".join([*parts, _END])


def _opener(thinks: bool, behind_result: bool) -> str:
    return ("\n\n" if behind_result else "") + (_THINK if thinks else _END_THINK)


def _call(call: Any) -> str:
    function = as_object((as_object(call) or {}).get("function")) or {}
    arguments = function.get("arguments")
    fields = as_object(arguments)
    if fields is None:  # a model's own malformed call, replayed
        fields = {"arguments": arguments} if arguments else {}
    lines = [_parameter(name, value) for name, value in fields.items()]
    begin = f'<{_SIGIL}invoke name="{function.get("name")}">'
    return "\n".join([begin, *lines, f"</{_SIGIL}invoke>"])


def _parameter(name: str, value: Any) -> str:
    is_text = isinstance(value, str)
    text = value if is_text else _json(value)
    flag = "true" if is_text else "false"
    return f'<{_SIGIL}parameter name="{name}" string="{flag}">{text}</{_SIGIL}parameter>'


def _definition(tool: Mapping[str, Any]) -> Any:
    return as_object(tool.get("function")) or tool


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
