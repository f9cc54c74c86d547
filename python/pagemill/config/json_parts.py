"""Parts of options whose value is a JSON object, as flags of their own.

--speculative-config.method ngram --speculative-config.num_speculative_tokens 4

is `--speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'`. Further dots name
parts of parts. `--hf-overrides.eos_token_id+ 7` appends to a list, and
`--hf-overrides.eos_token_id+=7,8` appends two items. Parts complete the value that the option has
otherwise, from a flag or a file, and override what it has under their names.
"""

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pagemill.config.fields import ConfigError


@dataclass(frozen=True, slots=True)
class PartFlag:
    """A flag for one part of an option's value."""

    flag: str  # as it was given, without its value
    option: str  # the option's flag: `--hf-overrides`
    path: tuple[str, ...]  # names from the outermost to the innermost
    appends: bool

    @property
    def dest(self) -> str:
        """The option's name, with underscores."""
        return self.option.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A part with its value, or with the list of items to append."""

    flag: PartFlag
    value: Any


def split_flag(arg: str) -> PartFlag | None:
    """Returns the part that the argument `arg`, with or without `=VALUE`, names; None if it is not
    of the form `--option.part`. Names are not checked: they may be empty."""
    flag = arg.partition("=")[0]
    option, dot, rest = flag.partition(".")
    # An argument with a space is a text, not a flag, as argparse sees it.
    if not (option.startswith("--") and dot) or " " in flag:
        return None
    path = tuple(rest.removesuffix("+").split("."))
    return PartFlag(flag, option.replace("_", "-"), path, rest.endswith("+"))


def parse_part(flag: PartFlag, text: str) -> JsonPart:
    """Returns the part `flag` with the value of `text`: JSON if it is JSON, else the text itself.
    Items to append that are not JSON together are separated by commas."""
    value = _value(text)
    if flag.appends:
        is_text = value == text
        value = [_value(item) for item in text.split(",")] if is_text else [value]
    return JsonPart(flag, value)


def with_parts(whole: Mapping[str, Any], parts: Iterable[JsonPart]) -> dict[str, Any]:
    """Returns a copy of `whole` with `parts` in it. Of a part that is given twice, the last counts,
    unless it appends.

    Raises:
      ConfigError: a part is given together with a part of itself, or replaced and appended to; or
        `whole` has something else than the object or the list that a part needs. The message names
        the flag.
    """
    result = copy.deepcopy(dict(whole))
    given: dict[tuple[str, ...], PartFlag] = {}
    for part in parts:
        flag = part.flag
        for path, other in given.items():
            length = min(len(path), len(flag.path))
            is_nested = len(path) != len(flag.path) and path[:length] == flag.path[:length]
            if is_nested or (path == flag.path and other.appends != flag.appends):
                raise ConfigError(f"{flag.flag}: cannot be combined with {other.flag}")
        given[flag.path] = flag
        _set(result, part)
    return result


def _set(whole: dict[str, Any], part: JsonPart) -> None:
    flag = part.flag
    holder = whole
    for depth, name in enumerate(flag.path[:-1], 1):
        inside: Any = holder.setdefault(name, {})
        if not isinstance(inside, dict):
            raise _misfit(flag, flag.path[:depth], "an object")
        holder = cast("dict[str, Any]", inside)
    last = flag.path[-1]
    if not flag.appends:
        holder[last] = part.value
        return
    items: Any = holder.setdefault(last, [])
    if not isinstance(items, list):
        raise _misfit(flag, flag.path, "a list")
    cast("list[Any]", items).extend(part.value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _misfit(flag: PartFlag, path: tuple[str, ...], needed: str) -> ConfigError:
    return ConfigError(f"{flag.flag}: {'.'.join(path)} of {flag.option} is not {needed}")
