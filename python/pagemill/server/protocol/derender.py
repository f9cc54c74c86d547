"""Bodies of `/v1/chat/completions/derender`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.server.protocol.chat import ChoiceLogprobs
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing
from pagemill.server.protocol.sampling import TokenId
from pagemill.server.protocol.usage import Usage


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


class DerenderRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request. `chat_request` is the chat that was rendered, `generate_response` the answer to
    its rendering."""

    chat_request: dict[str, Any]
    generate_response: Generated
    model: str | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""


RULES = FieldRules(
    unsupported={
        "stream": Unsupported(lambda value: value is False, "send the whole answer."),
        "generate_responses": Unsupported(nothing, "send `generate_response`."),
        "completion_request": Unsupported(nothing, "send `chat_request`."),
    },
    ignored=frozenset({"prompt_tokens", "prompt_token_ids"}),
)
