"""One request with `n` choices becomes `n` child requests of the native engine."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from pagemill.config.sampling import LOGPROBS_MODES, SamplingFields
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import ALL_LOGPROBS, SamplingParams

_NATIVE_NO_LOGPROBS = -1  # step::SamplingParams::kNoLogprobs
_NATIVE_ALL_LOGPROBS = -2  # step::SamplingParams::kAllLogprobs
_SEED_MASK = (1 << 64) - 1
# The others are about choices and their text, or not always sent.
_SAMPLED = frozenset(SamplingFields.__struct_fields__) - {
    *("n", "seed", "include_stop_str_in_output", "skip_special_tokens", "logprob_token_ids")
}


def child_sampling(
    sampling: SamplingParams,
    *,
    max_tokens: int,
    eos_token_ids: Sequence[int],
) -> list[dict[str, Any]]:
    """The fields of the native SamplingParams of each of the request's `n` children.

    The children differ in their seed only: child `i` draws with `seed + i`, and a request without
    a seed gets a random one. `sampling` has every field that `SamplingDefaults.fill` sets.

    Raises:
        EngineError: INVALID_ARGUMENT for `n < 1`, for several greedy choices, for an unknown
            `logprobs_mode`, and for `return_routed_experts` with stop strings.
    """
    if sampling.n < 1:
        raise EngineError("INVALID_ARGUMENT", f"`n` must be at least 1, got {sampling.n}.", "n")
    if sampling.n > 1 and sampling.greedy:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"`n` must be 1 with greedy sampling (temperature {sampling.temperature}): all"
            f" {sampling.n} choices would be the same.",
            "n",
        )
    if sampling.return_routed_experts and sampling.stop:
        raise EngineError(
            "INVALID_ARGUMENT",
            "`return_routed_experts` does not go with `stop`, which ends a choice before the engine"
            " has returned its experts: use `stop_token_ids`.",
            "return_routed_experts",
        )
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
    fields = {name: getattr(sampling, name) for name in _SAMPLED}
    fields |= {
        "top_k": 0 if sampling.top_k == -1 else sampling.top_k,
        "logit_bias": [
            (token, min(100.0, max(-100.0, bias))) for token, bias in sampling.logit_bias.items()
        ],
        "max_tokens": max_tokens,
        "eos_token_ids": list(eos_token_ids),
        "logprobs": _native_logprobs(sampling.logprobs),
        "prompt_logprobs": _native_logprobs(sampling.prompt_logprobs),
        **_rare_fields(sampling),
    }
    return [fields | {"seed": (seed + child) & _SEED_MASK} for child in range(sampling.n)]


def _rare_fields(sampling: SamplingParams) -> dict[str, Any]:
    """Fields that few requests have, which the messages of the others do without."""
    fields: dict[str, Any] = {}
    mode = sampling.logprobs_mode or LOGPROBS_MODES[0]
    if mode not in LOGPROBS_MODES:
        known = ", ".join(LOGPROBS_MODES)
        message = f"`logprobs_mode` must be one of {known}, got {mode!r}."
        raise EngineError("INVALID_ARGUMENT", message, "logprobs_mode")
    if mode != LOGPROBS_MODES[0]:
        fields["logprobs_mode"] = LOGPROBS_MODES.index(mode)
    if sampling.watermarking is False:
        fields["watermarking"] = False
    if sampling.logprob_token_ids:
        fields |= {"logprobs": 0, "logprob_token_ids": sampling.logprob_token_ids}
    repetition = sampling.repetition_detection
    if repetition is not None and repetition.max_pattern_size > 0:
        fields |= {
            "repetition_max_pattern": repetition.max_pattern_size,
            "repetition_min_pattern": repetition.min_pattern_size,
            "repetition_min_count": repetition.min_count,
        }
    return fields


def _native_logprobs(count: int | None) -> int:
    if count is None:
        return _NATIVE_NO_LOGPROBS
    return _NATIVE_ALL_LOGPROBS if count == ALL_LOGPROBS else count
