"""The sampling fields that chat and completions share."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.config.sampling import INT32_MAX, SamplingFields
from pagemill.engine.output_plugins import MAX_NAMED
from pagemill.engine.sampling import ALL_LOGPROBS, RepetitionDetectionParams, SamplingParams
from pagemill.server.errors import bad_request
from pagemill.server.protocol.decode import Unsupported, nothing, only
from pagemill.server.protocol.structured import StructuredOutputs

MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 4096
MAX_KV_TRANSFER_PARAMS = 32
MAX_BAD_WORDS = 256
MAX_LENGTH_PENALTY = 10.0

Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT32_MAX)]
TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
BadWord = Annotated[str, Meta(min_length=1, max_length=256)]
Timeout = Annotated[float, Meta(gt=0, le=86400)]  # seconds
LengthPenalty = Annotated[float, Meta(ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY)]
Logprobs = Annotated[int, Meta(ge=-1, le=INT32_MAX)]


class StreamOptions(msgspec.Struct, kw_only=True):
    """`stream_options`."""

    include_usage: bool = True
    continuous_usage_stats: bool = False


class OutputFields(SamplingFields, kw_only=True, frozen=True):
    """What an output has to be, and what is said of it, beside the fields of `SamplingFields`.

    `None` is "not stated" and becomes the model's default.
    """

    logit_bias: dict[str, float] = {}
    stop: str | list[str] = []
    prompt_logprobs: Logprobs | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1)] | None = None
    bad_words: Annotated[list[BadWord], Meta(max_length=MAX_BAD_WORDS)] = []
    thinking_token_budget: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    vllm_xargs: Annotated[dict[str, Any], Meta(max_length=MAX_NAMED)] = {}
    watermarking: bool | None = None
    return_routed_experts: bool = False
    routed_experts_prompt_start: Count = 0


class GenerationRequest(OutputFields, kw_only=True, frozen=True):
    """Fields of a generating request beside those of its output."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    truncation_side: Literal["left", "right"] = "left"
    stream_interval: Positive = 1
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)] = 0
    timeout: Timeout | None = None
    request_id: Annotated[str, Meta(max_length=128)] = ""
    kv_transfer_params: Annotated[
        dict[str, str | bool | int | None], Meta(max_length=MAX_KV_TRANSFER_PARAMS)
    ] = {}
    use_beam_search: bool = False
    length_penalty: LengthPenalty = 1.0


def transfer_params(request: GenerationRequest) -> dict[str, str]:
    """`kv_transfer_params` as connectors take them: flags and numbers as text, null as absent."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in request.kv_transfer_params.items()
        if value is not None
    }


ENCODER_OUTPUTS = "outputs of encoders stay with their server; send the media."
UNSUPPORTED = {
    "structural_tag": Unsupported(nothing, "send `structured_outputs`."),
    # llama.cpp's names.
    "grammar": Unsupported(only(""), 'send `structured_outputs: {"grammar": ...}`.'),
    "json_schema": Unsupported(only({}), 'send `structured_outputs: {"json": ...}`.'),
    "logits_processors": Unsupported(
        only([]), "requests cannot carry code: name an installed plugin in `vllm_xargs`."
    ),
    "prompt_embeds": Unsupported(only([]), "send it to /v1/completions."),
    "mm_processor_kwargs": Unsupported(only({}), "start the server with --mm-processor-kwargs."),
    "media_io_kwargs": Unsupported(only({}), "start the server with --media-io-kwargs."),
    "ec_transfer_params": Unsupported(only({}), ENCODER_OUTPUTS),
}
IGNORED = frozenset(
    {
        *("store", "user", "metadata", "service_tier", "prompt_cache_key", "safety_identifier"),
        *("spaces_between_special_tokens", "prompt_cache_retention", "session_id"),
    }
)


def to_sampling(
    fields: GenerationRequest,
    *,
    logprobs: int | None,
    prompt_logprobs: int | None,
    max_logprobs: int,
    logprobs_param: str = "logprobs",
) -> SamplingParams:
    """The request's fields as the engine's parameters.

    Args:
        fields: the request.
        logprobs: alternatives per generated token, None for no log probabilities;
            `logprob_token_ids` take their place.
        prompt_logprobs: the same for prompt tokens.
        max_logprobs: the server's bound on both; -1 is the whole vocabulary.
        logprobs_param: the field that `logprobs` came from.

    Raises:
        ApiError: 400 naming the field.
    """
    for name, count in ((logprobs_param, logprobs), ("prompt_logprobs", prompt_logprobs)):
        _check_logprobs(name, count, max_logprobs)
    _check_logprobs("logprob_token_ids", len(fields.logprob_token_ids), max_logprobs)
    if fields.stream_options is not None and not fields.stream:
        raise bad_request(
            "`stream_options` may only be given with `stream: true`.", "stream_options"
        )
    shared: dict[str, Any] = {
        name: getattr(fields, name) for name in SamplingFields.__struct_fields__
    }
    if fields.logprob_token_ids:
        logprobs = 0
    if fields.seed == -1:
        shared["seed"] = None
    return SamplingParams(
        **shared,
        logit_bias=_logit_bias(fields.logit_bias),
        stop=_stop_strings(fields.stop),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        repetition_detection=fields.repetition_detection,
        return_routed_experts=fields.return_routed_experts,
        watermarking=fields.watermarking,
        extra_args=fields.vllm_xargs,
    )


def _check_logprobs(name: str, count: int | None, maximum: int) -> None:
    if count is None or maximum == -1:
        return
    if count == ALL_LOGPROBS or count > maximum:
        requested = "the whole vocabulary" if count == ALL_LOGPROBS else str(count)
        raise bad_request(
            f"`{name}` asks for {requested}; this server gives at most {maximum} (--max-logprobs).",
            name,
        )


def _stop_strings(stop: str | list[str]) -> tuple[str, ...]:
    strings = [stop] if isinstance(stop, str) else stop
    if len(strings) > MAX_STOP_STRINGS:
        raise bad_request(
            f"`stop` has {len(strings)} strings; at most {MAX_STOP_STRINGS} are allowed.", "stop"
        )
    for text in strings:
        if not 0 < len(text) <= MAX_STOP_CHARS:
            raise bad_request(
                f"`stop`: a stop string has 1 to {MAX_STOP_CHARS} characters, not {len(text)}.",
                "stop",
            )
    return tuple(strings)


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    parsed: dict[int, float] = {}
    for key, bias in biases.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise bad_request(
                f"`logit_bias`: {key[:40]!r} is not a token id; keys are token ids as strings.",
                "logit_bias",
            )
        if not math.isfinite(bias):
            raise bad_request(f"`logit_bias` of token {key} must be a finite number.", "logit_bias")
        parsed[int(key)] = bias
    return parsed
