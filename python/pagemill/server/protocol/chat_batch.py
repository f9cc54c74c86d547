"""Bodies of `/v1/chat/completions/batch`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pagemill.server.protocol import chat
from pagemill.server.protocol.chat import ChatFields, ChatRequest, Messages
from pagemill.server.protocol.completion import MAX_PROMPTS
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only

_ALONE = "send each conversation to `/v1/chat/completions`."


class BatchChatRequest(ChatFields, kw_only=True, frozen=True):
    """The request: conversations, of which each is answered. The other fields are of all."""

    messages: Annotated[list[Messages], Meta(min_length=1, max_length=MAX_PROMPTS)]


RULES = FieldRules(
    unsupported={
        **chat.RULES.unsupported,
        "stream": Unsupported(only(False), _ALONE),
        "n": Unsupported(only(1), _ALONE),
        "use_beam_search": Unsupported(only(False), _ALONE),
        "tools": Unsupported(only([]), _ALONE),
        "tool_choice": Unsupported(only("none"), _ALONE),
        "continue_final_message": Unsupported(only(False), _ALONE),
        "echo": Unsupported(only(False), _ALONE),
        "prompt_logprobs": Unsupported(nothing, _ALONE),
    },
    ignored=chat.RULES.ignored,
)


def chats(body: BatchChatRequest) -> list[ChatRequest]:
    """A chat for each conversation."""
    shared = {name: getattr(body, name) for name in ChatFields.__struct_fields__}
    return [ChatRequest(messages=messages, **shared) for messages in body.messages]
