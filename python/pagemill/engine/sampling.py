"""How one request is sampled, as a caller states it; the native form is made by `fan_out`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

ALL_LOGPROBS = -1
"""`logprobs = -1`: the whole vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request. Ranges are checked by the engine, which names the field.

    `stop`, `include_stop_str_in_output` and `skip_special_tokens` are about text and are applied
    after detokenization; the rest travels to the engine. `None` means "not stated": see
    `SamplingDefaults`.
    """

    n: int = 1
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] = field(default_factory=dict[int, float])
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken (an unstated one is not)."""
        return self.temperature is not None and self.temperature < 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What an unstated sampling field means on this server.

    `generation_config.choose_defaults` has the precedence; these constants are neutral.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> SamplingDefaults:
        """Takes the fields of a `generation_config.json`; each is absent or in its range.

        A model whose file says `do_sample: false` is not turned greedy by it: clients of the HTTP
        contract expect samples unless a temperature of 0 is written there.
        """
        names = ("temperature", "top_p", "min_p", "repetition_penalty")
        stated = {name: float(config[name]) for name in names if name in config}
        top_k = max(config.get("top_k", 0), 0)  # -1 is another way to say "all"
        return cls(**stated, top_k=top_k, max_tokens=config.get("max_new_tokens"))

    def fill(self, sampling: SamplingParams) -> SamplingParams:
        """`sampling` with every unstated field but `max_tokens` and `seed` set."""
        return replace(
            sampling,
            temperature=self.temperature if sampling.temperature is None else sampling.temperature,
            top_k=self.top_k if sampling.top_k is None else sampling.top_k,
            top_p=self.top_p if sampling.top_p is None else sampling.top_p,
            min_p=self.min_p if sampling.min_p is None else sampling.min_p,
            repetition_penalty=self.repetition_penalty
            if sampling.repetition_penalty is None
            else sampling.repetition_penalty,
        )
