"""Bodies of `/inference/v1/generate`: tokens in, tokens out."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.config.sampling import INT32_MAX
from pagemill.engine.async_engine import Prompt
from pagemill.server.protocol.chat import ChoiceLogprobs, PromptLogprobs
from pagemill.server.protocol.completion import CompletionRequest
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.sampling import (
    MAX_KV_TRANSFER_PARAMS,
    Count,
    GenerationRequest,
    Logprobs,
    OutputFields,
    StreamOptions,
    Timeout,
    TokenId,
)
from pagemill.server.protocol.structured import STRUCTURED_FIELDS, StructuredOutputs
from pagemill.server.protocol.usage import Usage
from pagemill.server.records.timings import RequestTimings
from pagemill.structured.grammar import Grammar, Reasoning, as_text

MAX_MARKERS = 16


class TokenSampling(
    OutputFields, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """`sampling_params`."""

    max_tokens: Count | None = None
    logprobs: Logprobs | None = None


class ReasoningTokens(msgspec.Struct, kw_only=True, frozen=True):
    """Text in front of a structured output: it ends with one of the tokens `closers`. The output
    `begins_within` it, or may open it with one of the tokens `openers`."""

    closers: Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_MARKERS)]
    openers: Annotated[list[TokenId], Meta(max_length=MAX_MARKERS)] = []
    begins_within: bool = False


class GenerateRequest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The request."""

    token_ids: Annotated[list[TokenId], Meta(min_length=1)]
    sampling_params: TokenSampling
    reasoning: ReasoningTokens | None = None
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    output_mode: Literal["tokens", "text"] = "tokens"
    return_token_ids: bool = False
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""
    kv_transfer_params: Annotated[
        dict[str, str | bool | int | None], Meta(max_length=MAX_KV_TRANSFER_PARAMS)
    ] = {}


_TOKENS = "prompts are tokens here."
RULES = FieldRules(
    unsupported={
        "features": Unsupported(nothing, _TOKENS),
        "content_parts": Unsupported(only([]), _TOKENS),
        "ec_transfer_params": Unsupported(only({}), _TOKENS),
    },
    ignored=frozenset({"token_offsets", "reasoning_ended", "reasoning_parser_kwargs"}),
)


class WeightSpan(msgspec.Struct):
    """Tokens of a choice, from `start` up to `end`, that weights of this version gave; "": weights
    without a version."""

    version: str
    start: int
    end: int


class GenerateChoice(msgspec.Struct):
    """A choice, complete or a part of one. `text`: with `output_mode: "text"`. `weight_versions`:
    with the end of a choice, once the operator has named the weights."""

    index: int
    token_ids: list[int]
    text: str | UnsetType = UNSET
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    weight_versions: list[WeightSpan] | UnsetType = UNSET
    routed_experts: str | UnsetType = UNSET


class GenerateResponse(msgspec.Struct):
    """A response, or one event of a stream."""

    request_id: str
    model: str
    output_mode: str
    choices: list[GenerateChoice]
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | None | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    kv_transfer_params: dict[str, str] | UnsetType = UNSET
    metrics: RequestTimings | UnsetType = UNSET


RENDERED = list[GenerateRequest]
"""A request a prompt."""


def as_generate_request(
    request: GenerationRequest, prompt: Prompt, logprobs: int | None, grammar: Grammar | None = None
) -> GenerateRequest:
    """The request that generates from `prompt` what `request` asks for. `grammar`: what the output
    has to be, in place of the fields that say it."""
    sampling = {name: getattr(request, name) for name in OutputFields.__struct_fields__}
    reasoning = None
    if grammar is not None:
        sampling |= dict.fromkeys(STRUCTURED_FIELDS)
        sampling["structured_outputs"] = StructuredOutputs(grammar=as_text(grammar))
        reasoning = _reasoning(grammar)
    return GenerateRequest(
        token_ids=prompt.rendered.token_ids.tolist(),
        sampling_params=TokenSampling(**sampling, max_tokens=prompt.max_tokens, logprobs=logprobs),
        reasoning=reasoning,
        **{name: getattr(request, name) for name in _SHARED},
    )


def as_completion(request: GenerateRequest) -> CompletionRequest:
    """The same as a request of `/v1/completions`."""
    sampling = request.sampling_params
    return CompletionRequest(
        prompt=request.token_ids,
        **{name: getattr(sampling, name) for name in TokenSampling.__struct_fields__},
        **{name: getattr(request, name) for name in _SHARED},
    )


def free_reasoning(request: GenerateRequest) -> Reasoning | None:
    """What a structured output may have in front."""
    found = request.reasoning
    if found is None:
        return None
    return Reasoning(tuple(found.openers), tuple(found.closers), found.begins_within)


_SHARED = (
    *("model", "stream", "stream_options", "return_token_ids", "cache_salt", "priority"),
    *("timeout", "request_id", "kv_transfer_params"),
)


def _reasoning(grammar: Grammar) -> ReasoningTokens | None:
    found = grammar.reasoning
    if found is None:
        return None
    return ReasoningTokens(
        closers=list(found.closers), openers=list(found.openers), begins_within=found.begins_within
    )
