"""A request body to a struct, or a 400 that names the field."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from pagemill.server.errors import invalid_body, not_implemented

T = TypeVar("T", bound=msgspec.Struct)

_LOGGER = logging.getLogger("pagemill.server")
_PATH = re.compile(r"(?s)^(?P<what>.*?) - at (?:`key` in )?`\$\.?(?P<path>.*)`$")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STEP = re.compile(r"\w+|\[[^]]*\]")
_NO_VALUE = ("Invalid enum value", "Invalid value")
_MISSING = re.compile(r"missing required field `(?P<field>\w+)`")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field of the contract that this server cannot honour yet.

    `harmless` says whether a value has no effect; any other value is refused. `reason`: that of the
    ApiError.
    """

    harmless: Callable[[Any], bool]
    sentence: str
    reason: str = ""


def nothing(value: object) -> bool:
    """No value is harmless; a null field counts as absent before this is called."""
    del value
    return False


def only(*values: object) -> Callable[[object], bool]:
    """The harmless values are these."""
    return lambda value: value in values


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What is known about a body besides the struct's own fields."""

    unsupported: Mapping[str, Unsupported]
    ignored: frozenset[str]
    """Fields of the contract that cannot change this server's output."""


def decode_fields(raw: Mapping[str, Any], kind: type[T], rules: FieldRules) -> T:
    """The fields of a request as a `kind`; unknown ones are logged and ignored, null is absent.

    Raises:
        ApiError: 400 for fields that are not such a struct's, or an unsupported one.
    """
    present = {name: value for name, value in raw.items() if value is not None}
    for name, rule in rules.unsupported.items():
        if name in present and not rule.harmless(present[name]):
            raise not_implemented(f"`{name}` is not supported: {rule.sentence}", name, rule.reason)
    known = {*kind.__struct_fields__, *rules.unsupported, *rules.ignored, "request_id"}
    unknown = sorted(raw.keys() - known)
    if unknown:
        shown = ", ".join(repr(name[:40]) for name in unknown[:10])
        _LOGGER.info("ignored %d unknown request field(s): %s", len(unknown), shown)
    try:
        # Not strict: 5.0 and "5" are 5, "true" and 1 are true, as with the reference system.
        request = msgspec.convert(present, kind, strict=False)
    except msgspec.ValidationError as error:
        message, param = explain(error, kind)
        raise invalid_body(message, param) from error
    except RecursionError as error:
        raise invalid_body("The body is nested too deeply.") from error
    for name in present.keys() & set(kind.__struct_fields__):
        if getattr(request, name) is None:  # msgspec reads the string "null" as null
            raise invalid_body(f'`{name}` is the string "null"; send null itself.', name)
    return request


def decode_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        ApiError: 400 for anything else.
    """
    try:
        raw: Any = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        # msgspec's own position counts from the beginning of a string, which the client cannot see.
        raise invalid_body("The body is not valid UTF-8.") from error
    except msgspec.DecodeError as error:
        raise invalid_body(f"The body is not valid JSON: {error}{_surrogates(body)}") from error
    except RecursionError as error:
        raise invalid_body("The body is nested too deeply.") from error
    if not isinstance(raw, dict):
        raise invalid_body(f"The body must be a JSON object, not {type(raw).__name__}.")
    return cast(dict[str, Any], raw)


def explain(error: msgspec.ValidationError, kind: type | None = None) -> tuple[str, str | None]:
    """A sentence about the error, and the top-level field it is about. With `kind`, which was to be
    decoded, it names the values that could have been sent where there are few."""
    text = str(error)
    located = _PATH.match(text)
    if located is not None:
        path = located["path"]
        field = re.match(r"\w+", path)
        what = located["what"]
        known = _values(kind, path) if kind and what.startswith(_NO_VALUE) else ()
        instead = f"; expected one of {', '.join(known)}" if known else ""
        return f"`{path}`: {what[:1].lower()}{what[1:]}{instead}.", field[0] if field else None
    missing = _MISSING.search(text)
    if missing is not None:
        return f"`{missing['field']}` is required.", missing["field"]
    return f"{text}.", None


def _values(kind: type, path: str) -> list[str]:
    """The values of literals, or the tags of structs, that stand at `path` in a `kind`."""
    places = [_type_info(kind)]
    values: set[str] = set()
    for step in _STEP.findall(path):
        inner: list[inspect.Type] = []
        values.clear()
        for place in _members(places):
            match place:
                case inspect.StructType():
                    inner += [each.type for each in place.fields if each.encode_name == step]
                    if place.tag_field == step:
                        values.add(str(place.tag))
                case inspect.ListType() if step.startswith("["):
                    inner.append(place.item_type)
                case _:
                    pass
        places = inner
    for place in _members(places):
        if isinstance(place, inspect.LiteralType):
            values.update(str(each) for each in place.values)
    return sorted(values)


def _members(places: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for place in places:
        yield from place.types if isinstance(place, inspect.UnionType) else (place,)


@functools.cache
def _type_info(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _surrogates(body: bytes) -> str:
    """A hint for bodies with half of a surrogate pair, which msgspec reports as something else."""
    if not _SURROGATE.search(body):
        return ""
    return r" (escapes from \ud800 to \udfff must come in pairs)"
