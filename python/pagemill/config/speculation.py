"""Draft tokens: guesses that a step verifies together with the token before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagemill.config.fields import ConfigError, check, did_you_mean, option

_NUMBERS: Final[Mapping[str, int]] = {  # and the most that each may be
    "num_speculative_tokens": 64,
    "prompt_lookup_min": 16,
    "prompt_lookup_max": 16,
}


@dataclass(frozen=True, slots=True)
class NgramDrafts:
    """Drafts are what followed the last tokens where the request's own text had them before.

    `max_tokens` is the most drafts of one request in one step; the longest match of `min_match` to
    `max_match` tokens decides.
    """

    max_tokens: int
    min_match: int
    max_match: int


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """Speculation: next tokens are guessed, and verified together in one step."""

    speculative_config: dict[str, Any] = option(
        {},
        'Speculative decoding, as JSON: {"method": "ngram", "num_speculative_tokens": 8} verifies'
        " guesses of the next tokens in one step, at most so many of a request. ngram guesses what"
        " followed the last tokens when the prompt or the output had them before: faster where"
        ' answers repeat their prompt, as when code is edited. "prompt_lookup_min" and'
        ' "prompt_lookup_max" (3 and 8) say how many tokens have to match. Outputs are the same;'
        " how many guesses are tried depends on how many were right, down to none.",
    )

    def __post_init__(self) -> None:
        """Checks the fields of the JSON object.

        Raises:
          ConfigError: the method or a field is unknown, or a number is out of range.
        """
        check(self)
        for name, value in self.speculative_config.items():
            if name == "method":
                continue
            if name not in _NUMBERS:
                known = ["method", *_NUMBERS]
                raise ConfigError(
                    f"--speculative-config: unknown field {name!r}{did_you_mean(name, known)}"
                )
            if type(value) is not int or not 1 <= value <= _NUMBERS[name]:
                raise ConfigError(
                    f"--speculative-config: {name} is {value!r}; it is a whole number from 1 to"
                    f" {_NUMBERS[name]}"
                )
        if self.speculative_config and self.speculative_config.get("method") != "ngram":
            method = self.speculative_config.get("method")
            raise ConfigError(f"--speculative-config: method is {method!r}; it must be 'ngram'")
        ngram = self.ngram
        if ngram is not None and ngram.min_match > ngram.max_match:
            raise ConfigError(
                f"--speculative-config: prompt_lookup_min = {ngram.min_match} is more than"
                f" prompt_lookup_max = {ngram.max_match}"
            )

    @property
    def ngram(self) -> NgramDrafts | None:
        """None if nothing is guessed."""
        values = self.speculative_config
        if not values:
            return None
        low = values.get("prompt_lookup_min", min(3, values.get("prompt_lookup_max", 3)))
        high = values.get("prompt_lookup_max", max(8, low))
        return NgramDrafts(values.get("num_speculative_tokens", 8), low, high)
