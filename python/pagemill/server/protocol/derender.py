"""Bodies of `/v1/chat/completions/derender` and `/v1/completions/derender`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.server.errors import bad_request, invalid_body
from pagemill.server.protocol.chat import ChatResponse, ChoiceLogprobs
from pagemill.server.protocol.completion import MAX_PROMPTS, CompletionResponse
from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.sampling import TokenId
from pagemill.server.protocol.usage import Usage

MAX_STATE_CHARS = 2**20
"""As many tokens as are read have at most 940 KiB in base64."""


class GeneratedChoice(msgspec.Struct, kw_only=True, frozen=True):
    """A choice of `/inference/v1/generate`."""

    token_ids: list[TokenId]
    finish_reason: str
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | int | None = None


class Generated(msgspec.Struct, kw_only=True, frozen=True):
    """An answer of `/inference/v1/generate`, as far as it is used."""

    choices: Annotated[list[GeneratedChoice], Meta(min_length=1)]
    usage: Usage | None = None
    kv_transfer_params: dict[str, str] = {}


class GeneratedPart(msgspec.Struct, kw_only=True, frozen=True):
    """What a choice of `/inference/v1/generate` adds in a stream."""

    index: Annotated[int, Meta(ge=0)]
    token_ids: list[TokenId]
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | int | None = None


class GeneratedChunk(msgspec.Struct, kw_only=True, frozen=True):
    """An event of a stream of `/inference/v1/generate`; the last one may have its usage only."""

    choices: list[GeneratedPart]
    usage: Usage | None = None
    kv_transfer_params: dict[str, str] = {}


class DerenderFields(msgspec.Struct, kw_only=True, frozen=True):
    """What both requests have: whole answers, or with `stream` an event of one, and the
    `stream_state` of the answer to the event before it."""

    generate_response: Generated | None = None
    generate_chunk: GeneratedChunk | None = None
    stream: bool = False
    stream_state: Annotated[str, Meta(max_length=MAX_STATE_CHARS)] | None = None
    model: str | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""

    @property
    def responses(self) -> tuple[str, list[Generated]]:
        """The field that whole answers are in, and the answers.

        Raises:
            ApiError: 400: there are none.
        """
        name = "generate_response"
        if self.generate_response is None:
            raise invalid_body(f"`{name}` is required.", name)
        return name, [self.generate_response]

    @property
    def chunk(self) -> GeneratedChunk:
        """The event of a stream.

        Raises:
            ApiError: 400: there is none.
        """
        if self.generate_chunk is None:
            raise invalid_body("`generate_chunk` is required with `stream`.", "generate_chunk")
        return self.generate_chunk


class ChatDerenderRequest(DerenderFields, kw_only=True, frozen=True):
    """The request. `chat_request` is the chat that was rendered."""

    chat_request: dict[str, Any]


class CompletionDerenderRequest(DerenderFields, kw_only=True, frozen=True):
    """The request. `completion_request` is the completion that was rendered; if it has several
    prompts, `generate_responses` are the answers to their renderings."""

    completion_request: dict[str, Any]
    generate_responses: Annotated[list[Generated], Meta(max_length=MAX_PROMPTS)] = []

    @property
    def responses(self) -> tuple[str, list[Generated]]:
        """See `DerenderFields`."""
        if not self.generate_responses:
            return super().responses
        if self.generate_response is not None:
            raise bad_request(
                "`generate_response` and `generate_responses` exclude each other.",
                "generate_response",
            )
        return "generate_responses", self.generate_responses


class StreamState(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of an answer whose events come one by one: its head, and the tokens so far of
    each choice."""

    name: str
    created: int
    token_ids: list[list[TokenId]]


class DerenderedChunk(msgspec.Struct):
    """The event of the answer's stream, null if the tokens so far make none; and what the next
    call needs."""

    chunk: dict[str, Any] | None
    stream_state: str


RULES = FieldRules(unsupported={}, ignored=frozenset({"prompt_tokens", "prompt_token_ids"}))
CHAT = ChatResponse | DerenderedChunk
COMPLETION = CompletionResponse | DerenderedChunk
"""The second one with `stream`."""
