"""How one request is sampled, as a caller states it; the native form is made by `fan_out`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from pagemill.config.sampling import NEUTRAL, SamplingFields

ALL_LOGPROBS = -1
"""`logprobs = -1`: the whole vocabulary."""


class SamplingParams(SamplingFields, kw_only=True, frozen=True):
    """Sampling of one request. Ranges are checked by the engine, which names the field.

    `stop`, `include_stop_str_in_output` and `skip_special_tokens` are about text and are applied
    after detokenization; the rest travels to the engine. `None` means "not stated": see
    `SamplingDefaults`.
    """

    logit_bias: dict[int, float] = {}
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken (an unstated temperature is 1)."""
        return self.temperature is not None and self.temperature < 1e-5


class SamplingDefaults(SamplingFields, kw_only=True, frozen=True):
    """What an unstated sampling field means on this server.

    Precedence: the request, then the model's `generation_config.json`, then the neutral values.
    """

    max_tokens: int | None = None

    @classmethod
    def from_generation_config(cls, config: Mapping[str, object]) -> SamplingDefaults:
        """Reads the fields that a Hugging Face `generation_config.json` may set.

        A model whose file says `do_sample: false` is not turned greedy by it: clients of the HTTP
        contract expect temperature 1 unless a temperature is written there.
        """
        values = {
            name: type(neutral)(_number(config, name, neutral)) for name, neutral in NEUTRAL.items()
        }
        return cls(**values, max_tokens=int(_number(config, "max_new_tokens", 0)) or None)

    def fill(self, sampling: SamplingParams) -> SamplingParams:
        """`sampling` with every field set that a model may have a default of."""
        unstated = {
            name: neutral if (own := getattr(self, name)) is None else own
            for name, neutral in NEUTRAL.items()
            if getattr(sampling, name) is None
        }
        return structs.replace(sampling, **unstated)


def _number(config: Mapping[str, object], key: str, default: float) -> float:
    value = config.get(key)
    return float(value) if isinstance(value, int | float) else default
