"""The format of Grok 2. Tools, which it does not know, are described as in `tool_prompt`.

Source: the chat template of https://huggingface.co/xai-org/grok-2.
"""

from __future__ import annotations

from pagemill.render.renderers.base import Chat
from pagemill.render.tool_prompt import with_tools

_END = "<|separator|>\n\n"
_NAMES = {"user": "Human", "system": "System", "developer": "System"}


def write(chat: Chat) -> str:
    """Returns the prompt of `chat`."""
    parts: list[str] = []
    for message in with_tools(chat.messages, chat.tools):
        role, content = message["role"], message["content"]
        if role == "assistant":
            parts.append(f"Assistant: {content}{_END}")
        else:
            parts.append(f"{_NAMES[role]}: {content.strip()}{_END}")
    if chat.add_generation_prompt:
        parts.append("Assistant:")
    return "".join(parts)
