"""Draft tokens: guesses that a step verifies together with the token before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from pagemill.config.fields import ConfigError, check, did_you_mean, option

_Field = tuple[int, int] | tuple[float, float] | type[str] | type[bool]

# Fields of each method besides its name: the range of a whole number, that of a number, or a type.
_MODEL: Final[Mapping[str, _Field]] = {
    "num_speculative_tokens": (1, 64),
    "model": str,
    "revision": str,
}
_METHODS: Final[Mapping[str, Mapping[str, _Field]]] = {
    "ngram": {
        "num_speculative_tokens": (1, 64),
        "prompt_lookup_min": (1, 16),
        "prompt_lookup_max": (1, 16),
    },
    "suffix": {
        "num_speculative_tokens": (1, 64),
        "suffix_decoding_max_tree_depth": (3, 64),
        "suffix_decoding_max_cached_requests": (0, 100_000),
        "suffix_decoding_max_spec_factor": (0.01, 64.0),
        "suffix_decoding_min_token_prob": (0.0, 1.0),
    },
    "draft_model": {**_MODEL, "parallel_drafting": bool},
    "dflash": {**_MODEL, "parallel_drafting": bool},
    "eagle": _MODEL,
    "eagle3": {**_MODEL, "parallel_drafting": bool},
    "medusa": _MODEL,
    "mlp_speculator": _MODEL,
    "mtp": {"num_speculative_tokens": (1, 64)},
}
_NEEDS: Final[Mapping[str, str]] = {
    "draft_model": "a smaller model with the same tokens",
    "dflash": "a drafter that was made for the model",
    "eagle": "a head that was made for the model",
    "eagle3": "a head that was made for the model",
    "medusa": "heads that were made for the model",
    "mlp_speculator": "one that was made for the model",
}
HeadMethod = Literal["mtp", "dflash", "eagle", "eagle3", "medusa", "mlp_speculator"]
# Drafts of a request in one step by default: an MTP layer is trained for one token, other heads for
# several, and the smallest blocks of published DFlash drafters have eight tokens, of which one is
# known.
_HEAD_TOKENS: Final[Mapping[HeadMethod, int]] = {
    "mtp": 1,
    "dflash": 7,
    "eagle": 3,
    "eagle3": 3,
    "medusa": 3,
    "mlp_speculator": 3,
}
_MTP_ALIASES: Final = (
    "deepseek_mtp",
    "ernie_mtp",
    "exaone_moe_mtp",
    "glm4_moe_lite_mtp",
    "glm4_moe_mtp",
    "hy_v3_mtp",
    "longcat_flash_mtp",
    "mimo_mtp",
    "mimo_v2_mtp",
    "nemotron_h_mtp",
    "qwen3_5_mtp",
    "qwen3_next_mtp",
    "step3p5_mtp",
)


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
class SuffixDrafts:
    """Drafts are the tokens that followed the last tokens earlier in the request's own text, or in
    one of the last `max_cached_requests` outputs.

    `max_tokens` is the maximum number of drafts of one request in one step. Matches are compared
    over `max_match` tokens, and one of n tokens is worth `max_factor` * n drafts; drafts end where
    fewer than `min_probability` of the places agree.
    """

    max_tokens: int
    max_match: int
    max_factor: float
    min_probability: float
    max_cached_requests: int


@dataclass(frozen=True, slots=True)
class ModelDrafts:
    """Drafts come from `model`, a smaller one with the same tokens, given like the model itself.
    `max_tokens` is the maximum number of drafts of one request in one step, which are made in one
    pass if `parallel`."""

    max_tokens: int
    model: str
    revision: str | None = None
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class HeadDrafts:
    """Drafts come from a head that reads hidden states of the model: its own MTP layer, or a DFlash
    drafter, an EAGLE or EAGLE-3 head, Medusa heads or an MLP speculator in `model`, which is given
    like the model itself; None for "mtp". `max_tokens` is the maximum number of drafts of one
    request in one step. A DFlash drafter and an EAGLE-3 head may be `parallel`: they make all of
    them in one pass, from masks."""

    max_tokens: int
    method: HeadMethod
    model: str | None = None
    revision: str | None = None
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """The head of `HeadDrafts` on this machine: its folder, None if its weights are the model's."""

    method: HeadMethod
    path: str | None = None
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """Speculation: next tokens are guessed, and verified together in one step."""

    speculative_config: dict[str, Any] = option(
        {},
        'Speculative decoding, as JSON: {"method": "ngram", "num_speculative_tokens": 8} verifies'
        " drafts of the next tokens in one step, at most this many per request. ngram drafts the"
        " tokens that followed the last tokens at an earlier occurrence in prompt or output: faster"
        ' if answers repeat their prompt, as when code is edited. "prompt_lookup_min" and'
        ' "prompt_lookup_max" (3 and 8) bound the tokens that must match. {"method": "suffix"} also'
        " looks in the outputs of earlier requests, for work that repeats itself, as that of agents"
        ' does. {"method": "draft_model", "model": "small.gguf", "num_speculative_tokens": 5}'
        " drafts with a smaller model with the same tokens, which is given like the model itself"
        ' ("revision" of a hub'
        ' id). {"method": "mtp"} drafts with the MTP layer that the model\'s checkpoint has,'
        ' {"method": "eagle3", "model": "head"}, or "eagle", "medusa", "mlp_speculator" or'
        ' "dflash", with a head that was trained for the model; these read its hidden states, and'
        " draft 1 token (mtp), 7 (dflash) or 3 by default."
        ' "parallel_drafting": true makes all drafts in one pass of a draft model (PARD) or an'
        " eagle3 head (P-EAGLE) that was trained for it; dflash always does."
        " Greedy outputs are the same, others have the same distribution; the number of drafts"
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
        if not isinstance(self._method, str) or self._method not in _METHODS:
            known = ", ".join(map(repr, _METHODS))
            raise ConfigError(
                f"--speculative-config: method is {values.get('method')!r}; it is one of {known}"
            )
        for name, value in values.items():
            if name != "method":
                _check_field(self._method, name, value)
        if self._method in _NEEDS and "model" not in values:
            raise ConfigError(
                f'--speculative-config: method "{self._method}" needs "model",'
                f" {_NEEDS[self._method]}"
            )
        if self._method == "dflash" and values.get("parallel_drafting") is False:
            raise ConfigError(
                '--speculative-config: method "dflash" always drafts in parallel: leave'
                " parallel_drafting out"
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
        method = values.get("method", "draft_model" if "model" in values else None)
        return "mtp" if method in _MTP_ALIASES else method

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
    def suffix(self) -> SuffixDrafts | None:
        """None if drafts do not come from outputs of earlier requests."""
        values = self.speculative_config
        if self._method != "suffix":
            return None
        return SuffixDrafts(
            values.get("num_speculative_tokens", 24),
            values.get("suffix_decoding_max_tree_depth", 24),
            float(values.get("suffix_decoding_max_spec_factor", 1.0)),
            float(values.get("suffix_decoding_min_token_prob", 0.1)),
            values.get("suffix_decoding_max_cached_requests", 10_000),
        )

    @property
    def draft_model(self) -> ModelDrafts | None:
        """None if drafts do not come from a model."""
        values = self.speculative_config
        if self._method != "draft_model":
            return None
        tokens = values.get("num_speculative_tokens", 5)
        return ModelDrafts(tokens, values["model"], values.get("revision"), self.parallel)

    @property
    def draft_head(self) -> HeadDrafts | None:
        """None if drafts do not come from a head that reads hidden states."""
        values, method = self.speculative_config, self._method
        if method not in get_args(HeadMethod):
            return None
        tokens = values.get("num_speculative_tokens", _HEAD_TOKENS[method])
        return HeadDrafts(
            tokens, method, values.get("model"), values.get("revision"), self.parallel
        )

    @property
    def parallel(self) -> bool:
        """True if one pass makes all drafts of a request, from masks."""
        return self._method == "dflash" or self.speculative_config.get("parallel_drafting", False)

    @property
    def max_tokens(self) -> int:
        """The maximum number of drafts of one request in one step; 0 without speculation."""
        drafts = self.ngram or self.suffix or self.draft_model or self.draft_head
        return 0 if drafts is None else drafts.max_tokens


def _check_field(method: str, name: str, value: object) -> None:
    field = _METHODS[method].get(name)
    if field is None:
        known = ["method", *_METHODS[method]]
        raise ConfigError(
            f"--speculative-config: method {method!r} has no field {name!r}"
            f"{did_you_mean(name, known)}"
        )
    stated = f"--speculative-config: {name} is {value!r}; it is"
    if field is bool:
        if type(value) is not bool:
            raise ConfigError(f"{stated} true or false")
        return
    if not isinstance(field, tuple):
        if type(value) is not str or not value:
            raise ConfigError(f"{stated} a text")
        return
    low, high = field
    kinds, kind = ((int,), "whole number") if type(low) is int else ((int, float), "number")
    if type(value) not in kinds or not low <= cast("float", value) <= high:
        raise ConfigError(f"{stated} a {kind} from {low} to {high}")
