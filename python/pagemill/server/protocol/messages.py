"""Bodies of `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.config.sampling import INT32_MAX
from pagemill.engine.output_plugins import MAX_NAMED
from pagemill.server.error_shapes import AnthropicError
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.sampling import (
    ENCODER_OUTPUTS,
    MAX_KV_TRANSFER_PARAMS,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    Positive,
    Timeout,
)


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ImageSource(msgspec.Struct, frozen=True):
    """Where an image is: `data` in base64, or a `url`; others are refused."""

    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""


class ImageBlock(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image, for models that take such."""

    source: ImageSource


class DocumentSource(msgspec.Struct, frozen=True):
    """Where a document is. `data` is the text of one of type `text`, and a file of text or a PDF of
    one of type `base64`; one of type `content` has `content`. Others are refused."""

    type: str
    data: str = ""
    content: str | list[TextBlock] = ""


class DocumentBlock(msgspec.Struct, frozen=True, tag_field="type", tag="document"):
    """A document. `context` says what it is."""

    source: DocumentSource
    title: str | None = None
    context: str | None = None


class ToolReferenceBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_reference"):
    """A tool that a search of the client's found; it is one of the request's tools."""

    tool_name: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """What the model thought. This server does not read the signature."""

    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    """What another model thought, encrypted; it is dropped."""


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A call of a tool."""

    id: str
    name: Annotated[str, Meta(min_length=1)]
    input: dict[str, Any]


ResultBlock = TextBlock | ImageBlock | DocumentBlock | ToolReferenceBlock


class ToolResultBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    """What a call returned, or why it failed."""

    tool_use_id: str
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None


ContentBlock = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | ToolReferenceBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
)


class InputMessage(msgspec.Struct, frozen=True):
    """A turn, or a part of one: messages of the same role in a row are one turn."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]


class Tool(msgspec.Struct, frozen=True):
    """A tool that the client runs."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model may, must, or must not call tools, or which one it must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    """Whether the model thinks, if its chat template has that switch, and whether its thoughts are
    in the response. `max_tokens` bounds thinking and answer together, `budget_tokens` thinking, if
    its end is one token."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: Positive | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct, frozen=True):
    """What the text has to be."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    """How much effort the model should make, and what its text has to be."""

    effort: Annotated[str, Meta(max_length=32)] | None = None
    format: OutputFormat | None = None


class CountTokensRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What a prompt is made of."""

    messages: Annotated[list[InputMessage], Meta(min_length=1, max_length=16384)]
    model: str | None = None
    system: str | list[TextBlock] = ""
    tools: list[Tool] = []
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] = {}


_StopSequence = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]


class MessagesRequest(CountTokensRequest, kw_only=True, frozen=True):
    """The request. `max_tokens` is bounded by the room that the prompt leaves."""

    max_tokens: Positive
    stop_sequences: Annotated[list[_StopSequence], Meta(max_length=MAX_STOP_STRINGS)] = []
    stream: bool = False
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    watermarking: bool | None = None
    vllm_xargs: Annotated[dict[str, Any], Meta(max_length=MAX_NAMED)] = {}
    timeout: Timeout | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    kv_transfer_params: Annotated[
        dict[str, str | bool | int | None], Meta(max_length=MAX_KV_TRANSFER_PARAMS)
    ] = {}
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(
    unsupported={
        "mcp_servers": Unsupported(only([]), "the client has to connect to them."),
        "container": Unsupported(only({}), "this server runs no tools."),
        "output_format": Unsupported(only({}), "send `output_config`."),
        "ec_transfer_params": Unsupported(only({}), ENCODER_OUTPUTS),
        "compaction": Unsupported(nothing, "this server does not summarize conversations."),
        # With this reason the package `anthropic` sends the conversation again, without the field.
        "thread": Unsupported(
            nothing, "send the whole conversation.", "thread_unsupported_request"
        ),
    },
    ignored=frozenset(
        {
            *("metadata", "service_tier", "cache_control", "context_management", "betas"),
            *("inference_geo", "diagnostics", "speed", "user_profile_id", "workspace_id"),
            *("billing_policy", "fallbacks", "fallback_credit_token"),
            "request_id",  # of a count, which is not answered with one
        }
    ),
)


class TokenCount(msgspec.Struct):
    """How many tokens a prompt has."""

    input_tokens: int


class MessageUsage(msgspec.Struct):
    """Tokens so far. Those of the prompt are `input_tokens` and `cache_read_input_tokens` together;
    the latter came from the prefix cache, which needs no request to keep a prompt."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class WrittenThinking(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str


class WrittenToolUse(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool; `input` is an object."""

    id: str
    name: str
    input: msgspec.Raw


WrittenBlock = TextBlock | WrittenThinking | WrittenToolUse


class MessagesResponse(msgspec.Struct, tag_field="type", tag="message"):
    """A complete response, or the beginning of a stream."""

    id: str
    model: str
    content: list[WrittenBlock]
    usage: MessageUsage
    role: str = "assistant"
    stop_reason: str | None = None
    stop_sequence: str | None = None
    kv_transfer_params: dict[str, str] | UnsetType = UNSET


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    """More thinking."""

    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    """The signature of a block of thinking, which ends it."""

    signature: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


BlockDelta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The first event of a stream."""

    message: MessagesResponse


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: WrittenBlock


class BlockDeltaEvent(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """A block grows."""

    index: int
    delta: BlockDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """A block is complete."""

    index: int


class Stop(msgspec.Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The end of the message, with all of its tokens."""

    delta: Stop
    usage: MessageUsage
    kv_transfer_params: dict[str, str] | UnsetType = UNSET


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The last event of a stream that did not fail."""


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """Keeps a connection open while there is nothing to say."""


StreamEvent = (
    MessageStart
    | Ping
    | BlockStart
    | BlockDeltaEvent
    | BlockStop
    | MessageDelta
    | MessageStop
    | AnthropicError
)
