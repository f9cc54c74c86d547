"""The formats of DeepSeek V4 and V4.1, whose models come without a Jinja template.

Source of the words: `encoding/encoding_dsv4.py` of
https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash, and its counterpart of V4.1. Results of tools
are part of the user's turn. Reasoning of turns before the last one is shown if there are tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
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

_TOOLS = f"""\
## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by \
writing a "<{{block}}>" block like the following:

{{example}}

String parameters should be specified as is and set `string="true"`. For all other types (numbers, \
booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside \
{THINK}...{END_THINK} BEFORE any tool calls or final response.

Otherwise, output directly after {END_THINK} with tool calls or final response.

### Available Tool Schemas

{{tools}}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
_MOST_EFFORT = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve \
the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and \
adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, \
considered alternative, and rejected hypothesis to ensure absolutely no assumption is left \
unchecked.

"""
_EFFORTS: Mapping[str, int] = {
    "minimal": 25,
    "low": 25,
    "medium": 50,
    "high": 50,
    "xhigh": 75,
    "max": 100,
}
_TURNS = frozenset({"user", "tool"})


@dataclass(frozen=True, slots=True)
class _Version:
    """`system`: the token before system messages. `effort`: the words for one of 1 to 100."""

    dsml: Dsml
    system: str
    effort: Callable[[int], str]

    @property
    def users(self) -> frozenset[str]:
        """Roles that the assistant answers, besides a first system message."""
        return _TURNS | {"developer"} | ({"system"} if self.system else frozenset[str]())


_V4 = _Version(
    Dsml("tool_calls"), "", lambda effort: _MOST_EFFORT if effort >= _EFFORTS["xhigh"] else ""
)
_V41 = _Version(
    Dsml("calls", " "),
    "<｜System｜>",
    lambda effort: (
        f"Reasoning Effort: {effort} "
        "(range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    ),
)


def write(chat: Chat) -> str:
    """Returns V4's prompt of `chat`.

    Raises:
      RenderError: a switch is not true or false, two of them differ, or the effort is unknown.
    """
    return _write(chat, _V4)


def write_v41(chat: Chat) -> str:
    """Returns V4.1's prompt of `chat`; raises as `write`."""
    return _write(chat, _V41)


def _write(chat: Chat, version: _Version) -> str:
    effort = _effort(chat.variables.get("reasoning_effort", "high"))
    is_thinking = thinks(chat.variables, default=True) and effort is not None
    messages = list(chat.messages)
    system: list[str] = []
    while messages and messages[0]["role"] == "system":
        system.append(messages.pop(0)["content"])
    words = version.effort(effort) if is_thinking and effort is not None else ""
    parts = [BEGIN]
    wanted = answers(chat.variables)
    if words or system or chat.tools or wanted:
        parts.append(version.system)
    parts += [words, "\n\n".join(filter(None, system))]
    if chat.tools:
        parts += ["\n\n", _tools(chat.tools, version.dsml)]
    parts.append(wanted)
    last = last_user(messages, version.users)
    shown = -1 if chat.tools else last  # reasoning of assistants behind this place
    parts += _turns(messages, version, is_thinking, shown)
    if chat.add_generation_prompt:
        parts.append(f"{ASSISTANT}{THINK if is_thinking else END_THINK}")
    return "".join(parts)


def _effort(value: Any) -> int | None:
    """How much to think, of 100; None for "none"."""
    if value == "none":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100:
        return value
    if not isinstance(value, str) or value not in _EFFORTS:
        raise RenderError(
            f"this model's reasoning effort is one of none, {', '.join(_EFFORTS)}",
            "reasoning_effort",
        )
    return _EFFORTS[value]


def _tools(tools: Sequence[Mapping[str, Any]], dsml: Dsml) -> str:
    example = dsml.example("TOOL_NAME", "PARAMETER")
    text = _TOOLS.replace("{block}", dsml.tag(dsml.block)).replace("{example}", example)
    return text.replace("{tools}", definitions(tools))


def _turns(
    messages: Sequence[Mapping[str, Any]], version: _Version, is_thinking: bool, shown: int
) -> Iterator[str]:
    order: dict[Any, int] = {}
    at = 0
    while at < len(messages):
        message = messages[at]
        role = message["role"]
        if role in _TURNS:
            end = at
            while end < len(messages) and messages[end]["role"] in _TURNS:
                end += 1
            yield USER + "\n\n".join(_blocks(messages[at:end], order))
            at = end
            continue
        if role == "assistant":
            before = messages[at - 1]["role"] if at else ""
            shows = is_thinking and at > shown
            if before in version.users:
                yield f"{ASSISTANT}{THINK if shows else END_THINK}"
            reasoning = message.get("reasoning")
            if shows:
                yield (reasoning if isinstance(reasoning, str) else "") + END_THINK
            yield message["content"] + version.dsml.calls(message) + END
            order = _order(message)
        else:
            yield (USER if role == "developer" else version.system) + message["content"]
        at += 1


def _order(message: Mapping[str, Any]) -> dict[Any, int]:
    """The places of a message's calls, by their ids."""
    calls = map(as_object, as_array(message.get("tool_calls")) or ())
    return {str(call.get("id")): at for at, call in enumerate(calls) if call is not None}


def _blocks(turn: Sequence[Mapping[str, Any]], order: Mapping[Any, int]) -> Iterator[str]:
    """Texts and results of one turn; results come in the order of their calls."""
    results = [message for message in turn if message["role"] == "tool"]
    results.sort(key=lambda result: order.get(str(result.get("tool_call_id")), 0))
    in_order = iter(results)
    for message in turn:
        if message["role"] == "tool":
            yield f"<tool_result>{next(in_order)['content']}</tool_result>"
        else:
            yield message["content"]
