"""How one request is sampled, as a caller states it; the native form is made by `fan_out`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
        """Whether the most likely token is always taken (an unstated temperature is 1)."""
        return self.temperature is not None and self.temperature < 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What an unstated sampling field means on this server.

    Precedence: the request, then the model's `generation_config.json`, then these constants.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None

    @classmethod
    def from_generation_config(cls, config: dict[str, object]) -> SamplingDefaults:
        """Reads the fields that a Hugging Face `generation_config.json` may set.

        A model whose file says `do_sample: false` is not turned greedy by it: clients of the HTTP
        contract expect temperature 1 unless a temperature is written there.
        """
        hard = cls()
        return cls(
            temperature=_number(config, "temperature", hard.temperature),
            top_k=int(_number(config, "top_k", hard.top_k)),
            top_p=_number(config, "top_p", hard.top_p),
            min_p=_number(config, "min_p", hard.min_p),
            repetition_penalty=_number(config, "repetition_penalty", hard.repetition_penalty),
            max_tokens=int(_number(config, "max_new_tokens", 0)) or None,
        )

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


def _number(config: dict[str, object], key: str, default: float) -> float:
    value = config.get(key)
    return float(value) if isinstance(value, int | float) else default
