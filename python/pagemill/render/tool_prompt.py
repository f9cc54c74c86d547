"""Tools for models whose chat template knows none: described in the system message, in the format
`hermes`; calls and results of earlier messages as the text that the model would have read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pagemill.render.chat_messages import Message
from pagemill.render.json_values import as_array, as_object

FORMAT = "hermes"

_INTRODUCTION = """\
You can call functions. Each line between <tools> and </tools> describes one:
<tools>
{tools}
</tools>
To call a function, answer with its name and its arguments as a JSON object, in this form:
<tool_call>
{{"name": "<name of the function>", "arguments": {{"<parameter>": <value>}}}}
</tool_call>
Write one such block for each call. Results come between <tool_response> and </tool_response>."""


def knows_tools(template: str) -> bool:
    """True if a chat template with this source writes tools, calls or their results itself."""
    return "tool" in template


def with_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
) -> list[Message]:
    """Returns `messages`, which `chat_messages.prepared` has made, in roles and contents that any
    template knows; the system message describes `tools`."""
    written = [_as_text(message) for message in messages]
    if not tools:
        return written
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    introduction = _INTRODUCTION.format(tools=lines)
    if written and written[0].get("role") == "system":
        first = written[0]
        return [{**first, "content": _joined(first.get("content"), introduction)}, *written[1:]]
    return [{"role": "system", "content": introduction}, *written]


def _as_text(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") == "tool":
        answer = f"<tool_response>\n{_text(content)}\n</tool_response>"
        return {"role": "user", "content": answer}
    calls = as_array(message.get("tool_calls"))
    if not calls:
        return message
    blocks = [f"<tool_call>\n{text}\n</tool_call>" for text in map(_call, calls) if text]
    others = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**others, "content": _joined(content, "\n".join(blocks))} if blocks else others


def _call(call: Any) -> str:
    """A call as `hermes` writes it; "" if it has no name."""
    function = as_object((as_object(call) or {}).get("function")) or {}
    if "name" not in function:
        return ""
    fields = {"name": function["name"], "arguments": function.get("arguments", {})}
    return json.dumps(fields, ensure_ascii=False)


def _joined(content: Any, text: str) -> Any:
    """`content`, text or parts, and behind it `text`."""
    parts = as_array(content)
    if parts is not None:
        return [*parts, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text


def _text(content: Any) -> str:
    parts = as_array(content)
    if parts is None:
        return content if isinstance(content, str) else ""
    return "\n".join(str((as_object(part) or {}).get("text", "")) for part in parts)
