"""The sampling fields of a request: one list from which the HTTP schema, flags and help come.

A field added here is a field of both generating routes, of `SamplingParams` and of the native
parameters of the same name (cc/step/sampling_params.h), and a flag unless its `extra` says
`flag=False`. `neutral` is what an unstated field means if the model has no default of its own.
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


class SamplingFields(msgspec.Struct, kw_only=True):
    """How tokens are chosen, as a caller states it. None: not stated, the model's own default.

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
        float, Meta(ge=-2, le=2, description="Lowers tokens that the output already has.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, Meta(ge=-2, le=2, description="The same, once for each time that it has them.")
    ] = 0.0
    repetition_penalty: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1000,
                description="Divides the scores of tokens that prompt or output already have.",
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
        int, Meta(ge=0, le=INT32_MAX, description="Tokens before which the output does not end.")
    ] = 0
    ignore_eos: Annotated[bool, Meta(description="Go on where the model would end.")] = False
    stop_token_ids: Annotated[
        list[Annotated[int, Meta(ge=0, le=INT32_MAX)]],
        Meta(description="Tokens that end the output.", extra={"flag": False}),
    ] = []
    include_stop_str_in_output: Annotated[
        bool,
        Meta(description="Keep the stop string at the end of the text.", extra={"flag": False}),
    ] = False
    skip_special_tokens: Annotated[
        bool, Meta(description="Leave control tokens out of the text.", extra={"flag": False})
    ] = True


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One of `SamplingFields`: its type without `| None`, and what its annotation says."""

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
        """What the field means if it is stated nowhere; only of `MODEL_FIELDS`."""
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
"""The fields that a model may have defaults of."""


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
    made = option(
        None if is_number else spec.default,
        meta.description or "",
        allowed=Range(low, meta.le) if is_number else None,
    )
    return spec.name, spec.kind | None if is_number else spec.kind, made


if typing.TYPE_CHECKING:
    SamplingConfig = _TextLimits
else:
    SamplingConfig = dataclasses.make_dataclass(
        "SamplingConfig",
        [_flag(spec) for spec in _SPECS if spec.extra.get("flag", True)],
        bases=(_TextLimits,),
        namespace={
            "__doc__": "Sampling: how tokens are chosen. What is not given is the model's own"
            " default.",
            "__module__": __name__,
        },
        frozen=True,
        slots=True,
    )


def stated_fields(flags: SamplingConfig) -> dict[str, Any]:
    """The flags that were given, by field name; 0 is a value."""
    values = {field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)}
    return {k: v for k, v in values.items() if v is not None and v != () and v is not False}
