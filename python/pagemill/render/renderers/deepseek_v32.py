"""The format of DeepSeek V3.2, whose models come without a Jinja template.

Source of the words around tools: `encoding/encoding_dsv32.py` of
https://huggingface.co/deepseek-ai/DeepSeek-V3.2. Reasoning is shown for the turns since the last
message of the user; earlier turns begin with the end of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagemill.render.renderers.base import Chat
from pagemill.render.renderers.dsml import (
    ASSISTANT,
    BEGIN,
    END,
    END_THINK,
    THINK,
    USER,
    Dsml,
    answers,
    definitions,
    last_user,
    thinks,
)

_DSML = Dsml("function_calls")
_BLOCK = _DSML.tag("function_calls")
_TOOLS = f"""\
## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{_BLOCK}>" block like the following as part of your reply \
to the user:
{_DSML.example("FUNCTION_NAME", "PARAMETER")}

String and scalar parameters should be specified as is without any escaping or quotes, while lists \
and objects should use JSON format. The "string" attribute should be set to "true" for string type \
parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider \
outputting a thinking block. Here is an example:

<{_BLOCK}>
...
</{_BLOCK}>

<function_results>
...
</function_results>

{THINK}...thinking about results{END_THINK}

Here are the functions available in JSONSchema format:
<functions>
{{tools}}
</functions>
"""
_USERS = frozenset({"user", "developer"})


def write(chat: Chat) -> str:
    """Returns the prompt of `chat`.

    Raises:
      RenderError: a switch is not true or false, or two of them differ.
    """
    is_thinking = thinks(chat.variables, default=False)
    messages = list(chat.messages)
    system: list[str] = []
    while messages and messages[0]["role"] == "system":
        system.append(messages.pop(0)["content"])
    parts = [BEGIN, "\n\n".join(filter(None, system))]
    if chat.tools:
        parts += ["\n\n", _TOOLS.replace("{tools}", definitions(chat.tools))]
    parts.append(answers(chat.variables))
    parts += _turns(messages, is_thinking)
    if chat.add_generation_prompt:
        behind_result = bool(messages) and messages[-1]["role"] == "tool"
        parts += ["" if behind_result else ASSISTANT, _opener(is_thinking, behind_result)]
    return "".join(parts)


def _turns(messages: Sequence[Mapping[str, Any]], is_thinking: bool) -> Iterator[str]:
    last = last_user(messages, _USERS)
    for number, message in enumerate(messages):
        before = messages[number - 1]["role"] if number else ""
        after = messages[number + 1]["role"] if number + 1 < len(messages) else ""
        match message["role"]:
            case "assistant":
                yield _assistant(message, before, is_thinking and number > last)
            case "tool":
                yield "" if before == "tool" else "\n\n<function_results>"
                yield f"\n<result>{message['content']}</result>"
                yield "" if after == "tool" else "\n</function_results>"
            case "system":
                yield message["content"]
            case "developer":
                yield f"{USER}\n\n# The user's message is: {message['content']}"
            case _:
                yield f"{USER}{message['content']}"


def _assistant(message: Mapping[str, Any], before: str, is_thinking: bool) -> str:
    behind_result = before == "tool"
    parts = ["" if behind_result else ASSISTANT, _opener(is_thinking, behind_result)]
    if is_thinking:
        reasoning = message.get("reasoning")
        parts += [reasoning if isinstance(reasoning, str) else "", END_THINK]
    return "".join([*parts, message["content"], _DSML.calls(message), END])


def _opener(is_thinking: bool, behind_result: bool) -> str:
    return ("\n\n" if behind_result else "") + (THINK if is_thinking else END_THINK)
