"""Keywords of values without parts: `type`, bounds of numbers, lengths and patterns of strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from pagemill.structured.json_schema.ecma_regex import parse
from pagemill.structured.json_schema.errors import SchemaError, UnwritableError
from pagemill.structured.json_schema.formats import FORMATS
from pagemill.structured.json_schema.shapes import (
    EVERYTHING,
    MAX_LARGE,
    NOTHING,
    Numbers,
    Shapes,
    Strings,
)

Schema = Mapping[str, Any]

INEXACT = replace(NOTHING, is_exact=False)
"""Nothing, because what there is cannot be said."""
_MAX_LENGTH = 2**31
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "null": {"null": True},
    "boolean": {"booleans": EVERYTHING.booleans},
    "number": {"numbers": EVERYTHING.numbers},
    "integer": {"numbers": (Numbers(is_integer=True),)},
    "string": {"strings": EVERYTHING.strings},
    "array": {"arrays": EVERYTHING.arrays},
    "object": {"objects": EVERYTHING.objects},
}


def value_pieces(schema: Schema, *, holds: bool) -> Iterator[Shapes]:
    """What each keyword allows if it `holds`, or does not.

    Raises:
        SchemaError: a keyword has a value that it cannot have.
    """
    if "type" in schema:
        yield _types(schema["type"], holds=holds)
    for bound, opposite in _number_bounds(schema):
        numbers = bound if holds else opposite
        if numbers is None:
            yield INEXACT
        else:
            yield limited(holds=holds, numbers=(numbers,))
    for strings, opposites in _string_bounds(schema):
        found = (strings,) if holds else opposites
        yield INEXACT if found is None else limited(holds=holds, strings=found)


def limited(*, holds: bool, **kinds: Any) -> Shapes:
    """Values of `kinds`; if a keyword `holds`, also all values of other kinds."""
    return replace(EVERYTHING if holds else NOTHING, **kinds)


def value_shapes(value: Any, *, holds: bool) -> Shapes | None:
    """Exactly `value`, or all others; None for arrays and objects."""
    match value:
        case None:
            return replace(NOTHING if holds else EVERYTHING, null=holds)
        case bool():
            other = EVERYTHING.booleans - {value}
            return (
                replace(EVERYTHING, booleans=other)
                if not holds
                else Shapes(booleans=frozenset({value}))
            )
        case int() | float():
            number = _fraction(value, "const")
            if holds:
                return Shapes(numbers=(Numbers(number, number),))
            below = Numbers(most=number, is_most_open=True)
            above = Numbers(least=number, is_least_open=True)
            return replace(EVERYTHING, numbers=(below, above))
        case str():
            if holds:
                return Shapes(strings=(Strings(values=(value,)),))
            return replace(EVERYTHING, strings=(Strings(excluded=frozenset({value})),))
        case _:
            return None


def count(schema: Schema, name: str) -> int | None:
    """The value of a keyword that counts something."""
    value = schema.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise SchemaError(f"`{name}` must be an integer")
    if value < 0:
        raise SchemaError(f"`{name}` must not be negative")
    return min(int(value), _MAX_LENGTH)


def texts(value: Any, name: str) -> list[str]:
    """A list of texts."""
    if not isinstance(value, list) or not all(
        isinstance(each, str) for each in cast(list[Any], value)
    ):
        raise SchemaError(f"`{name}` must be a list of strings")
    return cast(list[str], value)


def _types(given: Any, *, holds: bool) -> Shapes:
    names = [given] if isinstance(given, str) else texts(given, "type")
    for name in names:
        if name not in _KINDS:
            raise SchemaError(f"`type` {name[:64]!r} is none of {', '.join(_KINDS)}")
    if holds:
        ordered = [name for name in _KINDS if name in names]
        if "number" in ordered and "integer" in ordered:
            ordered.remove("integer")
        return replace(NOTHING, **{k: v for name in ordered for k, v in _KINDS[name].items()})
    found = EVERYTHING
    for name in names:
        (kind,) = _KINDS[name]
        if name == "integer" and "number" not in names:
            found = replace(found, numbers=(Numbers(is_integer=False),))
        else:
            found = replace(found, **{kind: getattr(NOTHING, kind)})
    return found


def _number_bounds(schema: Schema) -> Iterator[tuple[Numbers, Numbers | None]]:
    """What each keyword allows, and its opposite if that can be said."""
    for name, sign in (("minimum", 1), ("maximum", -1)):
        exclusive = f"exclusive{name.title()}"
        is_open = schema.get(exclusive) is True  # as draft 4 has it
        if name in schema:
            yield _bounds(_checked(_number(schema, name), name, sign), sign, is_open=is_open)
        if exclusive in schema and not isinstance(schema[exclusive], bool):
            yield _bounds(_checked(_number(schema, exclusive), exclusive, sign), sign, is_open=True)
    for name in ("multipleOf", "divisibleBy"):
        if name in schema:
            step = _number(schema, name)
            if step <= 0:
                raise SchemaError(f"`{name}` must be positive")
            opposite = Numbers(is_integer=False) if step == 1 else None
            yield Numbers(multiple_of=step), opposite


def _checked(value: Fraction, name: str, sign: int) -> Fraction:
    if sign * value > MAX_LARGE:
        raise UnwritableError(f"`{name}` leaves only numbers beyond {MAX_LARGE:.0e}")
    return value


def _bounds(value: Fraction, sign: int, *, is_open: bool) -> tuple[Numbers, Numbers]:
    above = Numbers(least=value, is_least_open=is_open if sign > 0 else not is_open)
    below = Numbers(most=value, is_most_open=is_open if sign < 0 else not is_open)
    return (above, below) if sign > 0 else (below, above)


def _number(schema: Schema, name: str) -> Fraction:
    value = schema[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"`{name}` must be a number")
    return _fraction(value, name)


def _fraction(value: float, name: str) -> Fraction:
    if value != value or abs(value) == float("inf"):
        raise SchemaError(f"`{name}` must be a number")
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def _string_bounds(schema: Schema) -> Iterator[tuple[Strings, tuple[Strings, ...] | None]]:
    least, most = count(schema, "minLength"), count(schema, "maxLength")
    if least:
        yield Strings(least), (Strings(most=least - 1),)
    if most is not None:
        yield Strings(most=most), (Strings(most + 1),)
    pattern = schema.get("pattern")
    if pattern is not None:
        if not isinstance(pattern, str):
            raise SchemaError("`pattern` must be a string")
        parse(pattern)  # so that one that cannot be translated is this schema's
        yield (
            Strings(patterns=frozenset({(pattern, True)})),
            (Strings(patterns=frozenset({(pattern, False)})),),
        )
    known = FORMATS.get(str(schema.get("format")))
    if known is not None:
        yield Strings(patterns=frozenset({(known, True)})), None
