"""Bodies of `/v2/chat`: Cohere's API of chats."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.config.sampling import INT32_MAX
from pagemill.server.protocol.decode import FieldRules, Unsupported, only
from pagemill.server.protocol.sampling import (
    MAX_KV_TRANSFER_PARAMS,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    Positive,
    Timeout,
)


class TextContent(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ThinkingContent(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str


class ImageUrl(msgspec.Struct, frozen=True):
    """Where an image is; `data:` URLs hold it."""

    url: str
    detail: str | None = None


class ImageContent(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image, for models that take such."""

    image_url: ImageUrl


class Document(msgspec.Struct, frozen=True):
    """A document: names and values, or a text."""

    data: dict[str, Any] | str
    id: str | None = None


class DocumentContent(msgspec.Struct, frozen=True, tag_field="type", tag="document"):
    """A document that a tool returned."""

    document: Document


class Function(msgspec.Struct, frozen=True):
    """A call's function; `arguments` is JSON, as far as the model wrote such."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool."""

    id: str
    function: Function
    type: Literal["function"] = "function"


class SystemMessage(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """Instructions."""

    content: str | list[TextContent]


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """What the user says."""

    content: str | list[TextContent | ImageContent]


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """What the model said. `tool_plan` is what it thought before it called tools. Citations of an
    earlier answer are not read."""

    content: str | list[TextContent | ThinkingContent] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_plan: str | None = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """What a call returned."""

    tool_call_id: str
    content: str | list[TextContent | DocumentContent]


ChatMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class Thinking(msgspec.Struct, frozen=True):
    """Whether the model thinks, if its chat template has that switch; `token_budget` bounds it, if
    its end is one token."""

    type: Literal["enabled", "disabled"]
    token_budget: Positive | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """What the text has to be: a JSON object, of a schema if there is one."""

    type: Literal["text", "json_object"]
    json_schema: dict[str, Any] | None = None


_StopSequence = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class CohereChatRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request. `p` and `k` are `top_p` and `top_k` of other APIs."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=16384)]
    model: str | None = None
    stream: bool = False
    tools: list[dict[str, Any]] = []
    strict_tools: bool = False
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    documents: list[str | Document] = []
    response_format: ResponseFormat | None = None
    safety_mode: Literal["CONTEXTUAL", "STRICT", "OFF", "NONE"] | None = None
    max_tokens: Positive | None = None
    stop_sequences: Annotated[list[_StopSequence], Meta(max_length=MAX_STOP_STRINGS)] = []
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    k: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    p: Annotated[float, Meta(gt=0, le=1)] | None = None
    logprobs: bool = False
    thinking: Thinking | None = None
    watermarking: bool | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] = 0
    chat_template_kwargs: dict[str, Any] = {}
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    timeout: Timeout | None = None
    kv_transfer_params: Annotated[
        dict[str, str | bool | int | None], Meta(max_length=MAX_KV_TRANSFER_PARAMS)
    ] = {}
    request_id: Annotated[str, Meta(max_length=128)] = ""


def _wants_no_citations(options: object) -> bool:
    mode = cast(dict[str, Any], options).get("mode") if isinstance(options, dict) else options
    return mode is None or str(mode).upper() in ("OFF", "DISABLED")


RULES = FieldRules(
    unsupported={
        "citation_options": Unsupported(
            _wants_no_citations, 'answers have no citations; send {"mode": "OFF"}, or leave it out.'
        ),
        "raw_prompting": Unsupported(only(False), "send the prompt to /v1/completions."),
    },
    ignored=frozenset(),
)


class Tokens(msgspec.Struct):
    """Tokens of the prompt and of the answer."""

    input_tokens: int
    output_tokens: int


class CohereUsage(msgspec.Struct):
    """`cached_tokens` of the prompt came from the prefix cache."""

    billed_units: Tokens
    tokens: Tokens
    cached_tokens: int


class LogprobItem(msgspec.Struct):
    """Tokens, their text and their log probabilities."""

    text: str
    token_ids: list[int]
    logprobs: list[float]


FinishReason = Literal["COMPLETE", "STOP_SEQUENCE", "MAX_TOKENS", "TOOL_CALL", "ERROR"]


class WrittenMessage(msgspec.Struct):
    """The message of a complete answer."""

    content: list[TextContent | ThinkingContent]
    tool_calls: list[ToolCall] | UnsetType = UNSET
    role: str = "assistant"


class CohereChatResponse(msgspec.Struct):
    """A complete answer."""

    id: str
    finish_reason: FinishReason
    message: WrittenMessage
    usage: CohereUsage
    logprobs: list[LogprobItem] | UnsetType = UNSET
    kv_transfer_params: dict[str, str] | UnsetType = UNSET


class StartDelta(msgspec.Struct):
    """`delta` of the first event."""

    message: WrittenMessage


class MessageStart(msgspec.Struct, tag_field="type", tag="message-start"):
    """The first event of a stream, with an empty message."""

    id: str
    delta: StartDelta


class StartedContent(msgspec.Struct):
    """`message` of content that begins."""

    content: TextContent | ThinkingContent


class ContentStartDelta(msgspec.Struct):
    """`delta` of content that begins."""

    message: StartedContent


class ContentStart(msgspec.Struct, tag_field="type", tag="content-start"):
    """A text or a thought begins, empty."""

    index: int
    delta: ContentStartDelta


class ContentPiece(msgspec.Struct):
    """More text, or more of a thought."""

    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET


class GrownContent(msgspec.Struct):
    """`message` of content that grows."""

    content: ContentPiece


class ContentDeltaDelta(msgspec.Struct):
    """`delta` of content that grows."""

    message: GrownContent


class ContentDelta(msgspec.Struct, tag_field="type", tag="content-delta"):
    """A text or a thought grows."""

    index: int
    delta: ContentDeltaDelta
    logprobs: LogprobItem | UnsetType = UNSET


class ContentEnd(msgspec.Struct, tag_field="type", tag="content-end"):
    """A text or a thought is complete."""

    index: int


class StartedCall(msgspec.Struct):
    """`message` of a call that begins."""

    tool_calls: ToolCall


class ToolCallStartDelta(msgspec.Struct):
    """`delta` of a call that begins."""

    message: StartedCall


class ToolCallStart(msgspec.Struct, tag_field="type", tag="tool-call-start"):
    """A call begins, without arguments."""

    index: int
    delta: ToolCallStartDelta


class ArgumentsPiece(msgspec.Struct):
    """More of a call's arguments."""

    arguments: str


class CallPiece(msgspec.Struct):
    """What a call grows by."""

    function: ArgumentsPiece


class GrownCall(msgspec.Struct):
    """`message` of a call that grows."""

    tool_calls: CallPiece


class ToolCallDeltaDelta(msgspec.Struct):
    """`delta` of a call that grows."""

    message: GrownCall


class ToolCallDelta(msgspec.Struct, tag_field="type", tag="tool-call-delta"):
    """A call's arguments grow."""

    index: int
    delta: ToolCallDeltaDelta


class ToolCallEnd(msgspec.Struct, tag_field="type", tag="tool-call-end"):
    """A call is complete."""

    index: int


class EndDelta(msgspec.Struct):
    """How an answer ended. `error`: what failed."""

    finish_reason: FinishReason
    usage: CohereUsage
    error: str | UnsetType = UNSET


class MessageEnd(msgspec.Struct, tag_field="type", tag="message-end"):
    """The last event of a stream."""

    id: str
    delta: EndDelta
    kv_transfer_params: dict[str, str] | UnsetType = UNSET


StreamEvent = (
    MessageStart
    | ContentStart
    | ContentDelta
    | ContentEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | MessageEnd
)
