"""How one request is sampled, as a caller states it; `fan_out` computes the native form."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, structs

from pagemill.config.sampling import INT32_MAX, LOGPROBS_MODES, MODEL_FIELDS, SamplingFields
from pagemill.engine.outputs import EngineError

ALL_LOGPROBS = -1
"""`logprobs = -1`: the whole vocabulary."""
MAX_PATTERN_SIZE = 1024  # step::SamplingParams::kMaxRepetitionPattern

_PatternSize = Annotated[int, Meta(ge=0, le=MAX_PATTERN_SIZE)]


class RepetitionDetectionParams(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """When an output ends because it repeats itself: it ends with `min_count` times the same
    tokens in a row, `min_pattern_size` to `max_pattern_size` of them each time."""

    max_pattern_size: _PatternSize = 0
    """Tokens; 0 = off, at most 1024."""
    min_pattern_size: _PatternSize = 0
    """Tokens; 0 = 1."""
    min_count: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    """At least 2, unless off."""

    def __post_init__(self) -> None:
        """Raises ValueError for sizes or a count that do not fit together."""
        if self.min_pattern_size > self.max_pattern_size:
            raise ValueError(
                f"min_pattern_size is {self.min_pattern_size}, it must be at most"
                f" max_pattern_size, {self.max_pattern_size}"
            )
        if self.max_pattern_size > 0 and self.min_count < 2:
            raise ValueError(
                f"min_count is {self.min_count}, it must be at least 2 (a max_pattern_size of 0"
                " detects no repetition)"
            )


_OTHER_NAMES = {
    "sampling_params": "the argument is `sampling`",
    "params": "the argument is `sampling`",
    "max_new_tokens": "the argument is `max_tokens`",
    "use_tqdm": "`progress` is where a progress bar is drawn",
    "lora_request": "`adapter` is the name of an adapter",
    "prompt_token_ids": "lists of token ids are prompts themselves",
    "structured_outputs": "`grammar` says what an output has to be",
    "guided_json": "`grammar` says what an output has to be",
    "guided_regex": "`grammar` says what an output has to be",
    "guided_choice": "`grammar` says what an output has to be",
    "guided_decoding": "`grammar` says what an output has to be",
    "use_beam_search": "call LLM.beam_search",
    "best_of": "ask for `n` outputs",
    "detokenize": "outputs have texts and token ids",
}
"""Of vLLM, and what does the same here."""


class _NamedFields(msgspec.StructMeta):
    """Of a struct whose users write its fields by hand."""

    if not TYPE_CHECKING:  # which knows the fields, and would know them no longer

        def __call__(self, *args, **fields):
            """An instance; a TypeError says which field is meant by one that there is not."""
            try:
                return super().__call__(*args, **fields)
            except TypeError:
                for name in fields:
                    _check_name(name, self.__struct_fields__)
                raise


def _check_name(name: str, known: Sequence[str]) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        meant = f"did you mean `{close[0]}`?" if close else "see pagemill.SamplingParams"
        raise TypeError(f"there is no argument `{name}`: {_OTHER_NAMES.get(name, meant)}")


class SamplingParams(SamplingFields, metaclass=_NamedFields, kw_only=True, frozen=True):
    """Sampling of one request. Ranges are checked by the engine, which names the field.

    `stop`, `include_stop_str_in_output` and `skip_special_tokens` are about text and are applied
    after detokenization; the rest travels to the engine. `None` means "not stated": see
    `SamplingDefaults`. A field that there is not is a TypeError, which names the one that is meant.
    """

    logit_bias: dict[int, float] = {}
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """Of the most likely tokens; ignored with `logprob_token_ids`, which are reported then."""
    prompt_logprobs: int | None = None
    logprobs_mode: str | None = None
    """One of `LOGPROBS_MODES`."""
    repetition_detection: RepetitionDetectionParams | None = None
    return_routed_experts: bool = False
    """Each choice ends with the experts that were chosen for its tokens; not with `stop`."""
    watermarking: bool | None = None
    """False: the drawn tokens bear no mark. True: there has to be one. None: the server's, if it
    has one."""
    extra_args: dict[str, Any] = {}
    """Arguments of token matchers and logits processors of installed packages, JSON values, by the
    names of these: see `output_plugins`."""

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken (an unstated one is not)."""
        return self.temperature is not None and self.temperature < 1e-5


class SamplingDefaults(SamplingFields, kw_only=True, frozen=True):
    """What an unstated sampling field means on this server.

    None: not stated, the neutral value. `generation_config.choose_defaults` has the precedence.
    """

    max_tokens: int | None = None
    logprobs_mode: str = LOGPROBS_MODES[0]
    watermarks: bool = False
    """Whether drawn tokens bear a mark."""

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> SamplingDefaults:
        """Takes the fields of a `generation_config.json`; each is absent or in its range.

        A model whose file says `do_sample: false` is not turned greedy by it: clients of the HTTP
        contract expect samples unless a temperature of 0 is written there.
        """
        names = [name for name in MODEL_FIELDS if name in config]
        fields = {name: MODEL_FIELDS[name].kind(config[name]) for name in names}
        if "top_k" in fields:
            fields["top_k"] = max(fields["top_k"], 0)  # -1 is another way to say "all"
        return cls(**fields, max_tokens=config.get("max_new_tokens"))

    def values(self) -> dict[str, float]:
        """What each field that a model may have a default of means if a request leaves it open."""
        return {
            name: spec.neutral if (own := getattr(self, name)) is None else own
            for name, spec in MODEL_FIELDS.items()
        }

    def check(self, stated: SamplingParams) -> None:
        """Compares what a request states with what this server does.

        Raises:
            EngineError: INVALID_ARGUMENT: it wants a mark, and there is none.
        """
        if stated.watermarking and not self.watermarks:
            raise EngineError(
                "INVALID_ARGUMENT",
                "`watermarking` is true, and this server has no watermark: start it with"
                " --watermark-key-file, or leave the field out.",
                "watermarking",
            )

    def fill(self, sampling: SamplingParams) -> SamplingParams:
        """`sampling` with `values` and `logprobs_mode` for what it does not state."""
        own = {**self.values(), "logprobs_mode": self.logprobs_mode}
        unstated = {k: v for k, v in own.items() if getattr(sampling, k) is None}
        return structs.replace(sampling, **unstated)
