"""The sampling of an `LLM`'s prompts, as its caller states it.

    stated = sampling_of_each(sampling, fields, len(prompts))

Callers are Python programs: values may be NumPy scalars, `stop` may be one text, and a value of
another type is refused with the field's name, before anything is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_type_hints

import msgspec
import numpy as np
from msgspec import structs

from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams

Sampling = SamplingParams | Sequence[SamplingParams]
"""Of all prompts, or a list with that of each."""

# Without ranges: the engine checks them.
_TYPES = get_type_hints(SamplingParams)
_FIELDS = SamplingParams.__struct_fields__


def one_sampling(sampling: SamplingParams | None, fields: Mapping[str, Any]) -> SamplingParams:
    """What the caller states, as `sampling` or as its `fields`.

    Raises:
        TypeError: both are given, or something that is neither.
        EngineError: INVALID_ARGUMENT: a field has a value of another type.
    """
    if sampling is None:
        return _checked(SamplingParams(**fields))
    if not isinstance(sampling, SamplingParams):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(sampling).__name__
        raise TypeError(f"`sampling` is a SamplingParams, not a {kind}; or give fields by name")
    if fields:
        raise TypeError("give either `sampling` or its fields, not both")
    return _checked(sampling)


def sampling_of_each(
    sampling: Sampling | None, fields: Mapping[str, Any], num_prompts: int
) -> list[SamplingParams]:
    """That of each of `num_prompts`.

    Raises:
        TypeError, EngineError: see `one_sampling`; or a list has another length.
    """
    if sampling is None or not isinstance(sampling, Sequence):
        return [one_sampling(sampling, fields)] * num_prompts
    if len(sampling) != num_prompts:
        message = (
            f"`sampling` has {len(sampling)} entries for {num_prompts} prompts: give one for each"
            " prompt, or a single one for all"
        )
        raise EngineError("INVALID_ARGUMENT", message, "sampling")
    return [one_sampling(each, fields) for each in sampling]


def _checked(sampling: SamplingParams) -> SamplingParams:
    changed: dict[str, Any] = {}
    for name in _FIELDS:
        value: Any = getattr(sampling, name)
        plain = cast(Any, value.item() if isinstance(value, np.generic) else value)
        if name == "stop" and isinstance(plain, str):
            plain = (plain,)
        try:
            plain = msgspec.convert(plain, _TYPES[name])
        except msgspec.ValidationError as error:
            message = f"`{name}` is {_shown(value)}: {str(error)[:1].lower()}{str(error)[1:]}"
            raise EngineError("INVALID_ARGUMENT", message, name) from error
        if plain is not value:
            changed[name] = plain
    return structs.replace(sampling, **changed) if changed else sampling


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
