"""Whether a model's calls are the ones that were asked for, by the leaderboard's rules: the calls
in any order; each value one of those listed; of texts, only letters and digits count."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tools.bench.function_calls.cases import Call, Expected

_IGNORED = re.compile(r"[ ,./\-_*^]")
_OPTIONAL = ""


def matches(calls: Sequence[Call], expected: Sequence[Expected]) -> bool:
    """Whether `calls` are `expected`, one for one."""
    if len(calls) != len(expected):
        return False
    left = list(expected)
    for call in calls:
        found = next((each for each in left if _is_call(call, each)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is_call(call: Call, expected: Expected) -> bool:
    return call.name == expected.name and _is_object(call.arguments, expected.arguments)


def _is_object(found: Mapping[str, Any], expected: Mapping[str, Sequence[Any]]) -> bool:
    return found.keys() <= expected.keys() and all(
        _is_one_of(found[name], values) if name in found else _OPTIONAL in values
        for name, values in expected.items()
    )


def _is_one_of(found: Any, values: Sequence[Any]) -> bool:
    return any(_is_value(found, value) for value in values)


def _is_value(found: Any, value: Any) -> bool:
    if isinstance(value, dict):  # its values are lists of what is right
        return isinstance(found, dict) and _is_object(found, value)
    if isinstance(value, list):
        return (
            isinstance(found, list)
            and len(found) == len(value)
            and all(map(_is_value, found, value))
        )
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(found, str) and isinstance(value, str):
        return _plain(found) == _plain(value)
    return found == value


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
