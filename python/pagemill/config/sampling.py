"""Sampling parameters as flags, for the commands that generate text."""

from dataclasses import dataclass

from pagemill.config.fields import Range, check, option


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Sampling: how tokens are chosen. What is not given is the model's own default."""

    max_tokens: int | None = option(
        None,
        "Most tokens to generate. Default: 256, or what fits for chat.",
        unit="tokens",
        allowed=Range(1, 2**31 - 1),
    )
    temperature: float | None = option(
        None, "Randomness; 0 always takes the most likely token.", allowed=Range(0, 100)
    )
    top_p: float | None = option(
        None,
        "Sample only from the likeliest tokens that together have this probability.",
        allowed=Range(0, 1),
    )
    top_k: int | None = option(
        None, "Sample only from this many likeliest tokens; 0 is all.", allowed=Range(0, 2**31 - 1)
    )
    min_p: float | None = option(
        None,
        "Sample only from tokens at least this likely, relative to the likeliest.",
        allowed=Range(0, 1),
    )
    seed: int | None = option(
        None, "Same seed, same text. Default: a new one each time.", allowed=Range(0, 2**63 - 1)
    )
    stop: tuple[str, ...] = option((), "Stop before this text; may be repeated.")
    ignore_eos: bool = option(False, "Go on where the model would end.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
