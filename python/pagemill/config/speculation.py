"""Draft tokens: guesses that a step verifies together with the token before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagemill.config.fields import ConfigError, check, did_you_mean, option

# Fields of each method besides its name: the most that a number may be, or str.
_METHODS: Final[Mapping[str, Mapping[str, int | type[str]]]] = {
    "ngram": {"num_speculative_tokens": 64, "prompt_lookup_min": 16, "prompt_lookup_max": 16},
    "draft_model": {"num_speculative_tokens": 64, "model": str, "revision": str},
}


@dataclass(frozen=True, slots=True)
class NgramDrafts:
    """Drafts are the tokens that followed the last tokens at an earlier occurrence in the request's
    own text.

    `max_tokens` is the maximum number of drafts of one request in one step; the longest match of
    `min_match` to `max_match` tokens is used.
    """

    max_tokens: int
    min_match: int
    max_match: int


@dataclass(frozen=True, slots=True)
class ModelDrafts:
    """Drafts come from `model`, a smaller one with the same tokens, given like the model itself.
    `max_tokens` is the maximum number of drafts of one request in one step."""

    max_tokens: int
    model: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """Speculation: next tokens are guessed, and verified together in one step."""

    speculative_config: dict[str, Any] = option(
        {},
        'Speculative decoding, as JSON: {"method": "ngram", "num_speculative_tokens": 8} verifies'
        " drafts of the next tokens in one step, at most this many per request. ngram drafts the"
        " tokens that followed the last tokens at an earlier occurrence in prompt or output: faster"
        ' if answers repeat their prompt, as when code is edited. "prompt_lookup_min" and'
        ' "prompt_lookup_max" (3 and 8) bound the tokens that must match. {"method":'
        ' "draft_model", "model": "small.gguf", "num_speculative_tokens": 5} drafts with a smaller'
        ' model with the same tokens, which is given like the model itself ("revision" of a hub'
        " id). Greedy outputs are the same, others have the same distribution; the number of drafts"
        " depends on how many were accepted and on their cost, down to none.",
    )

    def __post_init__(self) -> None:
        """Checks the fields of the JSON object.

        Raises:
          ConfigError: the method or a field is unknown, or a value is out of range.
        """
        check(self)
        values = self.speculative_config
        if not values:
            return
        fields = _METHODS.get(self._method)
        if fields is None:
            known = " or ".join(map(repr, _METHODS))
            raise ConfigError(
                f"--speculative-config: method is {values.get('method')!r}; it must be {known}"
            )
        for name, value in values.items():
            if name != "method":
                _check_field(self._method, name, value)
        if self._method == "draft_model" and "model" not in values:
            raise ConfigError(
                '--speculative-config: method "draft_model" needs "model", a smaller model with'
                " the same tokens"
            )
        ngram = self.ngram
        if ngram is not None and ngram.min_match > ngram.max_match:
            raise ConfigError(
                f"--speculative-config: prompt_lookup_min = {ngram.min_match} is more than"
                f" prompt_lookup_max = {ngram.max_match}"
            )

    @property
    def _method(self) -> Any:
        values = self.speculative_config
        return values.get("method", "draft_model" if "model" in values else None)

    @property
    def ngram(self) -> NgramDrafts | None:
        """None if drafts do not come from the text."""
        values = self.speculative_config
        if self._method != "ngram":
            return None
        low = values.get("prompt_lookup_min", min(3, values.get("prompt_lookup_max", 3)))
        high = values.get("prompt_lookup_max", max(8, low))
        return NgramDrafts(values.get("num_speculative_tokens", 8), low, high)

    @property
    def draft_model(self) -> ModelDrafts | None:
        """None if drafts do not come from a model."""
        values = self.speculative_config
        if self._method != "draft_model":
            return None
        tokens = values.get("num_speculative_tokens", 5)
        return ModelDrafts(tokens, values["model"], values.get("revision"))

    @property
    def max_tokens(self) -> int:
        """The maximum number of drafts of one request in one step; 0 without speculation."""
        drafts = self.ngram or self.draft_model
        return 0 if drafts is None else drafts.max_tokens


def _check_field(method: str, name: str, value: object) -> None:
    limit = _METHODS[method].get(name)
    if limit is None:
        known = ["method", *_METHODS[method]]
        raise ConfigError(
            f"--speculative-config: method {method!r} has no field {name!r}"
            f"{did_you_mean(name, known)}"
        )
    if isinstance(limit, int):
        if type(value) is not int or not 1 <= value <= limit:
            raise ConfigError(
                f"--speculative-config: {name} is {value!r}; it is a whole number from 1 to {limit}"
            )
    elif type(value) is not str or not value:
        raise ConfigError(f"--speculative-config: {name} is {value!r}; it is a text")
