"""Bodies of `POST /v1/responses`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.response_items import OutputItem
from pagemill.server.protocol.sampling import IGNORED, UNSUPPORTED, GenerationRequest, Positive

MAX_ITEMS = 16384
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
_Name = Annotated[str, Meta(max_length=512)]


class ReasoningOptions(msgspec.Struct, kw_only=True, frozen=True):
    """`reasoning`: `effort` is a variable of the chat template. There are no summaries: responses
    have the reasoning itself."""

    effort: Annotated[str, Meta(max_length=64)] | None = None
    summary: Annotated[str, Meta(max_length=64)] | None = None


class TextOptions(msgspec.Struct, kw_only=True, frozen=True):
    """`text`: what the answer has to be."""

    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ConversationRef(msgspec.Struct, frozen=True):
    """Names a conversation that a response continues and is added to."""

    id: _Name


class ResponsesRequest(GenerationRequest, kw_only=True, frozen=True):
    """The request. Items of the input keep every key they have."""

    input: str | Annotated[list[dict[str, Any]], Meta(max_length=MAX_ITEMS)]
    instructions: str | None = None
    previous_response_id: _Name | None = None
    conversation: _Name | ConversationRef | None = None
    store: bool = True
    background: bool = False
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    max_tool_calls: Positive | None = None
    max_output_tokens: Positive | None = None
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    include: Annotated[list[str], Meta(max_length=64)] = []
    top_logprobs: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    truncation: Literal["auto", "disabled"] = "disabled"
    metadata: Annotated[dict[Annotated[str, Meta(max_length=64)], _Name], Meta(max_length=16)] = {}
    user: _Name | None = None
    safety_identifier: _Name | None = None
    prompt_cache_key: _Name | None = None
    service_tier: Annotated[str, Meta(max_length=64)] = "auto"
    chat_template_kwargs: dict[str, Any] = {}
    include_reasoning: bool = True


_CHAT = "`/v1/chat/completions` has it."
RULES = FieldRules(
    unsupported={
        **UNSUPPORTED,
        "prompt": Unsupported(nothing, "this server has no prompt templates."),
        "enable_response_messages": Unsupported(only(False), "/v1/responses/render shows tokens."),
        "previous_input_messages": Unsupported(only([]), "send `input` or `previous_response_id`."),
        "context_management": Unsupported(only([]), "the conversation is used as it is."),
        "moderation": Unsupported(nothing, "this server has no moderation."),
        "n": Unsupported(only(1), "send the request as often."),
        "prompt_logprobs": Unsupported(nothing, _CHAT),
        "return_routed_experts": Unsupported(only(False), _CHAT),
        "return_token_ids": Unsupported(only(False), _CHAT),
        "return_tokens_as_token_ids": Unsupported(only(False), _CHAT),
        "response_format": Unsupported(nothing, "send `text.format`."),
        "reasoning_effort": Unsupported(nothing, "send `reasoning.effort`."),
        "max_tokens": Unsupported(nothing, "send `max_output_tokens`."),
        "max_completion_tokens": Unsupported(nothing, "send `max_output_tokens`."),
        "messages": Unsupported(only([]), "send `input`."),
    },
    ignored=IGNORED | {"prompt_cache_options", "background_options"},
)


class InputTokens(msgspec.Struct):
    """How many tokens the prompt of a response has."""

    input_tokens: int
    object: str = "response.input_tokens"


class InputTokensDetails(msgspec.Struct):
    """How much of the prompt came from the prefix cache. Writing to it costs nothing."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    """How much of the output is reasoning, its markers included."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """`usage`."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct):
    """Why the output ended early."""

    reason: str


class ResponseError(msgspec.Struct):
    """Why a response failed."""

    code: str
    message: str


class Response(msgspec.Struct, kw_only=True):
    """A response, which repeats the settings of its request."""

    id: str
    object: str = "response"
    created_at: int
    status: ResponseStatus = "in_progress"
    background: bool = False
    completed_at: int | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: str | None
    conversation: ConversationRef | None = None
    prompt_cache_key: str | None
    reasoning: ReasoningOptions
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: TextOptions
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int = 0
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    truncation: str
    usage: ResponseUsage | None = None
    user: str | None
    metadata: dict[str, str]
