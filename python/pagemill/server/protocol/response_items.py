"""Items of a response's output."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagemill.server.protocol.chat import ContentLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: list[str] = []
    logprobs: list[ContentLogprob] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """The text of a reasoning item."""

    text: str


class OutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """A part of the answer."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: str = "assistant"


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    """What the model thought before it answered."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[str] = []
    encrypted_content: None = None


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a tool; `arguments` is JSON, as far as the model wrote such."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


OutputItem = OutputMessage | ReasoningItem | FunctionCall
