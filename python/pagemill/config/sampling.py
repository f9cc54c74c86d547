"""The sampling fields of a request: one list that defines the HTTP schema, flags and help.

A field added here is a field of both generating routes, of `SamplingParams` and of the native
parameters of the same name (cc/step/sampling_params.h), and a flag unless its `extra` says
`flag=False`. `neutral` is the value of an unstated field if the model has no default of its own.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.config.fields import Range, check, option

INT32_MAX = 2**31 - 1
MAX_CHOICES = 128  # `n`, as in the OpenAI API
MAX_LOGPROB_TOKEN_IDS = 128  # step::SamplingParams::kMaxLogprobTokenIds
LOGPROBS_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
"""What is reported of tokens; the native `logprobs_mode` is the index."""


class SamplingFields(msgspec.Struct, kw_only=True, frozen=True):
    """A caller's sampling fields. None: not stated, the model's default applies.

    The ranges are those of the HTTP API; the engine checks again and names the field.
    """

    n: Annotated[
        int,
        Meta(ge=1, le=MAX_CHOICES, description="Choices per prompt.", extra={"flag": False}),
    ] = 1
    temperature: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=100,
                description="Randomness; 0 always takes the most likely token.",
                extra={"neutral": 1.0},
            ),
        ]
        | None
    ) = None
    top_p: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1,
                description="Sample only from the likeliest tokens that together have this"
                " probability.",
                extra={"neutral": 1.0},
            ),
        ]
        | None
    ) = None
    top_k: (
        Annotated[
            int,
            Meta(
                ge=-1,
                le=INT32_MAX,
                description="Sample only from this many likeliest tokens; 0 is all.",
                extra={"neutral": 0},
            ),
        ]
        | None
    ) = None
    min_p: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1,
                description="Sample only from tokens at least this likely, relative to the"
                " likeliest.",
                extra={"neutral": 0.0},
            ),
        ]
        | None
    ) = None
    presence_penalty: Annotated[
        float,
        Meta(ge=-2, le=2, description="Lowers scores of tokens that occur in the output."),
    ] = 0.0
    frequency_penalty: Annotated[
        float, Meta(ge=-2, le=2, description="Likewise, once for each occurrence.")
    ] = 0.0
    repetition_penalty: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1000,
                description="Divides the scores of tokens that occur in prompt or output.",
                extra={"neutral": 1.0},
            ),
        ]
        | None
    ) = None
    seed: (
        Annotated[
            int,
            Meta(
                ge=-(2**63),
                le=2**63 - 1,
                description="Same seed, same text. Default: a new one each time.",
            ),
        ]
        | None
    ) = None
    min_tokens: Annotated[
        int, Meta(ge=0, le=INT32_MAX, description="Minimum number of output tokens.")
    ] = 0
    ignore_eos: Annotated[
        bool, Meta(description="Continue after the model's end-of-sequence token.")
    ] = False
    stop_token_ids: Annotated[
        list[Annotated[int, Meta(ge=0, le=INT32_MAX)]],
        Meta(description="Tokens that end the output.", extra={"flag": False}),
    ] = []
    logprob_token_ids: Annotated[
        list[Annotated[int, Meta(ge=0, le=INT32_MAX)]],
        Meta(
            max_length=MAX_LOGPROB_TOKEN_IDS,
            description="At most 128 tokens whose log probabilities are reported in place of the"
            " likeliest.",
            extra={"flag": False},
        ),
    ] = []
    include_stop_str_in_output: Annotated[
        bool,
        Meta(description="Keep the stop string at the end of the text.", extra={"flag": False}),
    ] = False
    skip_special_tokens: Annotated[
        bool, Meta(description="Omit control tokens from the text.", extra={"flag": False})
    ] = True


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One of `SamplingFields`: its type without `| None`, and its annotation's metadata."""

    name: str
    kind: Any
    default: Any
    meta: Meta

    @property
    def extra(self) -> dict[str, Any]:
        """`Meta.extra`."""
        return self.meta.extra or {}

    @property
    def neutral(self) -> float:
        """The value of the field if it is stated nowhere; only for `MODEL_FIELDS`."""
        return self.extra["neutral"]


def field_specs() -> list[FieldSpec]:
    """The fields in order."""
    hints = typing.get_type_hints(SamplingFields, include_extras=True)
    specs: list[FieldSpec] = []
    for info in msgspec.structs.fields(SamplingFields):
        hint = hints[info.name]
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        kind, meta = typing.get_args(hint)
        specs.append(FieldSpec(info.name, kind, info.default, meta))
    return specs


_SPECS = field_specs()

MODEL_FIELDS: typing.Final[Mapping[str, FieldSpec]] = {
    spec.name: spec for spec in _SPECS if "neutral" in spec.extra
}
"""The fields for which a model may have defaults."""


@dataclass(frozen=True, slots=True)
class _TextLimits:
    max_tokens: int | None = option(
        None,
        "Most tokens to generate. Default: 256, or what fits for chat.",
        unit="tokens",
        allowed=Range(1, INT32_MAX),
    )
    stop: tuple[str, ...] = option((), "Stop before this text; may be repeated.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def _flag(spec: FieldSpec) -> tuple[str, Any, Any]:
    meta = spec.meta
    is_number = spec.kind in (int, float)
    low = meta.ge if meta.ge is not None else meta.gt
    field = option(
        None if is_number else spec.default,
        meta.description or "",
        allowed=Range(low, meta.le) if is_number else None,
    )
    return spec.name, spec.kind | None if is_number else spec.kind, field


if typing.TYPE_CHECKING:
    SamplingConfig = _TextLimits
else:
    SamplingConfig = dataclasses.make_dataclass(
        "SamplingConfig",
        [_flag(spec) for spec in _SPECS if spec.extra.get("flag", True)],
        bases=(_TextLimits,),
        namespace={
            "__doc__": "Sampling: how tokens are chosen. Options that are not given have the"
            " model's defaults.",
            "__module__": __name__,
        },
        frozen=True,
        slots=True,
    )


def stated_fields(flags: SamplingConfig) -> dict[str, Any]:
    """The flags that were given, by field name; 0 is a value."""
    values = {field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)}
    return {k: v for k, v in values.items() if v is not None and v != () and v is not False}
