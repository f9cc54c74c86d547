"""One description per option, which defines flags, YAML keys, checks, help and docs.

A configuration is a tree of frozen dataclasses. A leaf is a field made by `option()`:

    @dataclass(frozen=True, slots=True)
    class CacheConfig:
        '''KV cache.'''
        block_size: int = option(16, "Tokens per KV block.", unit="tokens", allowed=Range(1, 256))

    config = build(CacheConfig, {"block_size": "32"})    # or {"block-size": 32}

Fields that are neither are set by the program. Leaf names are unique within a tree, because a flag
or a YAML key is the leaf's name alone.
"""

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pagemill.config.foreign_options import foreign_option
from pagemill.config.quantities import parse_bytes, parse_count

T = TypeVar("T")
_METADATA_KEY = "pagemill.option"
_TYPO_CUTOFF = 0.75
"""Least likeness of a suggested option: typos have 0.8 and more, names of other things less."""


class ConfigError(ValueError):
    """A configuration that cannot be used. The message names the option and its valid values."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included; None means no bound."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"from {_shown(self.low)} to {_shown(self.high)}"
        return (
            f"at least {_shown(self.low)}"
            if self.low is not None
            else f"at most {_shown(self.high)}"
        )


def _shown(bound: float | None) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


Kind = Literal["flag", "positional", "secret"]


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """The metadata of a field; see `option`."""

    help: str
    unit: str
    allowed: tuple[str, ...] | Range | None
    kind: Kind
    short: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """One option of a configuration tree."""

    name: str  # the field's name, with underscores
    annotation: Any  # resolved
    default: Any
    spec: OptionSpec
    owner: type[Any]  # the dataclass it is a field of

    @property
    def flag(self) -> str:
        """The command-line spelling: `--max-model-len`."""
        return "--" + self.name.replace("_", "-")

    @property
    def base_type(self) -> Any:
        """`annotation` without `| None`."""
        if typing.get_origin(self.annotation) in (types.UnionType, typing.Union):
            (base,) = [a for a in typing.get_args(self.annotation) if a is not types.NoneType]
            return base
        return self.annotation

    @property
    def is_optional(self) -> bool:
        """True if the value may be None (chosen by the program)."""
        return self.base_type is not self.annotation

    @property
    def is_list(self) -> bool:
        """True for a tuple that a repeated flag or a YAML list fills."""
        return typing.get_origin(self.base_type) is tuple

    @property
    def is_json(self) -> bool:
        """True for a JSON object, or a mapping in YAML."""
        return typing.get_origin(self.base_type) is dict


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    allowed: tuple[str, ...] | Range | None = None,
    kind: Kind = "flag",
    short: str = "",
) -> Any:
    """Returns a dataclass field that is a command-line flag and a YAML key too.

    Args:
      default: the value if none is given. None: the program chooses, and `help` says how.
      help: one or two sentences for `--help` and the docs, without the default.
      unit: "tokens", "bytes", "s", ...; "bytes" lets the value be written as 4GiB.
      allowed: the choices of a string, or the range of a number.
      kind: "positional" may also be given without a flag; "secret" is never printed.
      short: a one-letter flag, without the dash.
    """
    spec = OptionSpec(help=help, unit=unit, allowed=allowed, kind=kind, short=short)
    metadata = {_METADATA_KEY: spec}
    shown = kind != "secret"
    if default == {}:
        empty = typing.cast("type[dict[str, Any]]", dict)
        return dataclasses.field(default_factory=empty, metadata=metadata, repr=shown)
    return dataclasses.field(default=default, metadata=metadata, repr=shown)


def leaves(cls: type[Any]) -> list[Leaf]:
    """Returns the options of the configuration tree `cls`, depth first, in source order."""
    hints = typing.get_type_hints(cls)
    found: list[Leaf] = []
    for field in dataclasses.fields(cls):
        spec = field.metadata.get(_METADATA_KEY)
        if spec is not None:
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            found.append(Leaf(field.name, hints[field.name], default, spec, cls))
        elif dataclasses.is_dataclass(hints[field.name]):
            found.extend(leaves(typing.cast(type, hints[field.name])))
    return found


def build(cls: type[T], values: Mapping[str, Any]) -> T:
    """Returns the configuration tree `cls` with `values` in place of defaults.

    Args:
      cls: a dataclass of options or of such dataclasses.
      values: leaf name (dashes or underscores) to a value or its text.

    Raises:
      ConfigError: a name is unknown (the message names the closest), or a value does not fit.
    """
    known = {leaf.name: leaf for leaf in leaves(cls)}
    parsed: dict[str, Any] = {}
    for key, raw in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise ConfigError(f"unknown option {key!r}{unknown_option(name, known)}")
        if name in parsed:
            raise ConfigError(f"option {key!r} is given twice, with a dash and with an underscore")
        parsed[name] = parse_value(known[name], raw)
    return _construct(cls, parsed)


def flatten(config: Any) -> dict[str, Any]:
    """Returns every option of the tree as leaf name -> value; secrets are left out."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        spec = field.metadata.get(_METADATA_KEY)
        if dataclasses.is_dataclass(value):
            flat.update(flatten(value))
        elif spec is not None and spec.kind != "secret":
            flat[field.name] = value
    return flat


def check(config: Any) -> None:
    """Checks every option of one dataclass; its `__post_init__` calls this.

    Raises:
      ConfigError: a value has the wrong type or is not allowed.
    """
    cls = typing.cast(type[Any], type(config))
    for leaf in leaves(cls):
        if leaf.owner is cls:
            _check_value(leaf, getattr(config, leaf.name))


def did_you_mean(name: str, known: Mapping[str, Any] | Sequence[str], cutoff: float = 0.6) -> str:
    """Returns "; did you mean 'x'?" for the closest of `known`, or "" if none is as like as
    `cutoff` (`difflib`'s ratio); "-" and "_" are alike."""
    names = {n.replace("_", "-"): n for n in known}
    close = difflib.get_close_matches(name.replace("_", "-"), names, n=1, cutoff=cutoff)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def unknown_option(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """Returns what follows "unknown option 'x'" in a message: what to do if `name` is another
    server's, a suggestion if it looks like a typo of one of `known`, or ""."""
    what = foreign_option(name, known)
    flags = [each.replace("_", "-") for each in known]
    return f": {what}" if what else did_you_mean(name.split(".")[0], flags, _TYPO_CUTOFF)


def parse_value(leaf: Leaf, raw: Any) -> Any:
    """Returns the value of `leaf` for `raw`: text from a command line, or a YAML or Python value.

    Raises:
      ConfigError: `raw` does not fit.
    """
    if raw is None and leaf.is_optional:
        return None
    try:
        value = _converted(leaf, raw)
    except ValueError as error:
        raise ConfigError(f"{leaf.flag}: {error}") from None
    _check_value(leaf, value)
    return value


def _construct(cls: type[T], parsed: dict[str, Any]) -> T:
    hints = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _construct(hints[field.name], parsed)
        elif field.name in parsed:
            arguments[field.name] = parsed[field.name]
    return cls(**arguments)


def _converted(leaf: Leaf, raw: Any) -> Any:
    base = leaf.base_type
    if leaf.is_list:
        items: list[Any] = [*raw] if isinstance(raw, (list, tuple)) else [raw]  # pyright: ignore[reportUnknownVariableType]
        element = typing.get_args(base)[0]
        return tuple(_scalar(element, item, leaf.spec.unit) for item in items)
    if leaf.is_json:
        if isinstance(raw, str):
            raw = _json(raw)
        if not isinstance(raw, Mapping):
            raise ValueError(f"{raw!r} is not a JSON object")
        return dict(typing.cast(Mapping[str, Any], raw))
    return _scalar(base, raw, leaf.spec.unit)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f'{text!r:.200} is not JSON ({error}), such as {{"name": 1}}') from None


def _scalar(kind: Any, raw: Any, unit: str) -> Any:
    if kind is str and isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return str(raw)  # YAML reads `api-key: 1234` as a number
    if not isinstance(raw, str) or kind is str:
        if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
            return float(raw)
        return raw
    if kind is bool:
        words = {"true": True, "yes": True, "on": True, "1": True}
        words |= {"false": False, "no": False, "off": False, "0": False}
        if raw.lower() not in words:
            raise ValueError(f"{raw!r} is neither true nor false")
        return words[raw.lower()]
    if kind is int:
        return parse_bytes(raw) if unit == "bytes" else parse_count(raw)
    return float(raw)


def _check_value(leaf: Leaf, value: Any) -> None:
    if value is None:
        if not leaf.is_optional:
            raise ConfigError(f"{leaf.flag} needs a value")
        return
    base = leaf.base_type
    element = typing.get_args(base)[0] if leaf.is_list else typing.get_origin(base) or base
    if leaf.is_list and not isinstance(value, tuple):
        raise ConfigError(f"{leaf.flag}: {value!r} is not a tuple")
    items = typing.cast(tuple[Any, ...], value if leaf.is_list else (value,))
    for item in items:
        bad_bool = isinstance(item, bool) and element is not bool
        fits = isinstance(item, element) or (element is float and isinstance(item, int))
        if bad_bool or not fits:
            raise ConfigError(f"{leaf.flag}: {item!r} is not of type {element.__name__}")
        _check_allowed(leaf, item)


def _check_allowed(leaf: Leaf, value: Any) -> None:
    allowed = leaf.spec.allowed
    if isinstance(allowed, tuple) and value not in allowed:
        close = did_you_mean(str(value), list(allowed))
        raise ConfigError(f"{leaf.flag}: {value!r} is not one of {', '.join(allowed)}{close}")
    if isinstance(allowed, Range):
        # `not >=` rather than `<`: NaN is outside every range.
        too_low = allowed.low is not None and not value >= allowed.low
        too_high = allowed.high is not None and not value <= allowed.high
        if too_low or too_high:
            unit = f" {leaf.spec.unit}" if leaf.spec.unit else ""
            raise ConfigError(f"{leaf.flag}: {value} is out of range, which is {allowed}{unit}")
