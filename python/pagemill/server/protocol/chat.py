"""Bodies of `/v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.render.chat_messages import TEXT_PARTS
from pagemill.server.errors import bad_request
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.sampling import IGNORED, UNSUPPORTED, GenerationRequest, Positive
from pagemill.server.protocol.usage import Usage

_TOOLS = 'tool calls are not parsed in this version; send `tool_choice: "none"` with tools.'


class ChatRequest(GenerationRequest, kw_only=True):
    """The request. Messages keep every key they have, for the template to read."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=16384)]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = 0
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None


RULES = FieldRules(
    unsupported={
        **UNSUPPORTED,
        "functions": Unsupported(only([]), _TOOLS),
        "function_call": Unsupported(only("none", "auto"), _TOOLS),
        "modalities": Unsupported(only(["text"]), "the model writes text."),
        "audio": Unsupported(nothing, "the model writes text."),
        "web_search_options": Unsupported(nothing, "this server has no search."),
        "verbosity": Unsupported(only("medium"), "say in a message how long the answer should be."),
        "return_prompt_text": Unsupported(only(False), "`return_token_ids` gives its ids."),
    },
    ignored=IGNORED | {"parallel_tool_calls", "include_reasoning", "prediction"},
)


def check_messages(messages: list[dict[str, Any]]) -> None:
    """Checks what templates take for granted: roles, and contents that are text.

    Raises:
        ApiError: 400 naming the message.
    """
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role:
            raise bad_request(f"`messages[{at}].role` must be a non-empty string.", "messages")
        if content is None and role != "assistant":
            raise bad_request(f"`messages[{at}].content` is required.", "messages")
        if isinstance(content, list):
            for number, part in enumerate(cast(list[Any], content)):
                _check_part(part, f"messages[{at}].content[{number}]")
        elif not isinstance(content, str | None):
            raise bad_request(
                f"`messages[{at}].content` must be a string or a list of parts, not"
                f" {type(content).__name__}.",
                "messages",
            )


def _check_part(part: Any, where: str) -> None:
    if isinstance(part, str):
        return
    if not isinstance(part, dict):
        raise bad_request(f"`{where}` must be an object with a `type`.", "messages")
    fields = cast(dict[str, Any], part)
    kind = fields.get("type")
    field = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        raise bad_request(
            f"`{where}.type` is {str(kind)[:40]!r}; this model takes parts of type `text` only.",
            "messages",
        )
    if not isinstance(fields.get(field), str):
        raise bad_request(f"`{where}.{field}` must be a string.", "messages")


class TopLogprob(msgspec.Struct):
    """One alternative at one position."""

    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(msgspec.Struct):
    """One generated token."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct):
    """`logprobs` of a choice."""

    content: list[ContentLogprob]


class ChatMessage(msgspec.Struct):
    """The message of a complete choice."""

    role: str
    content: str
    refusal: None = None


class PromptLogprob(msgspec.Struct):
    """One alternative for one prompt token."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class ChatChoice(msgspec.Struct):
    """A complete choice."""

    index: int
    message: ChatMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    token_ids: list[int] | UnsetType = UNSET


class ChatResponse(msgspec.Struct):
    """A complete response."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"
    system_fingerprint: None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    """A choice's part of a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """One event of a stream."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: str = "chat.completion.chunk"
    usage: Usage | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
