"""Rules of numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor
from typing import Any

from pagemill.structured.json_schema.rules import BLANKS, IMPOSSIBLE
from pagemill.structured.json_schema.shapes import MAX_LARGE, Numbers
from pagemill.structured.json_schema.spelling import decimal, lark_literal

_MAX_WHOLE = 10**9
_MAX_BOUND = 2**62
"""llguidance's bounds are 64 bits wide."""
_DECIMALS = r"\.[0-9]{0,5}[1-9]"
"""Few enough that a double tells the number from an integer."""


def number_rule(numbers: Numbers, *, is_unique: bool) -> str:
    """The body of the rule of `numbers`, of which there are some. `is_unique`: each has one
    spelling."""
    if numbers.least is not None and numbers.least == numbers.most:
        return lark_literal(decimal(numbers.least))
    if numbers.is_integer is False:
        return " | ".join(_fractions(numbers)) or IMPOSSIBLE
    is_large = any(abs(bound or 0) > _MAX_BOUND for bound in (numbers.least, numbers.most))
    if (is_unique or is_large) and numbers.multiple_of is None:
        found = list(_integers(numbers))
        if not numbers.is_integer:
            found += _fractions(numbers)
        return " | ".join(found) or IMPOSSIBLE
    schema: dict[str, Any] = {
        "type": "integer" if numbers.is_integer else "number",
        "x-guidance": {"whitespace_pattern": BLANKS},  # as around it, so that both are one lexer
    }
    for name, bound, is_open in (
        ("Minimum", numbers.least, numbers.is_least_open),
        ("Maximum", numbers.most, numbers.is_most_open),
    ):
        if bound is not None:
            bound = min(max(bound, Fraction(-_MAX_BOUND)), Fraction(_MAX_BOUND))
            schema[f"exclusive{name}" if is_open else name.lower()] = _plain(bound)
    if numbers.multiple_of is not None:
        schema["multipleOf"] = _plain(numbers.multiple_of)
    return f"%json {json.dumps(schema)}"


def _plain(number: Fraction) -> float:
    return int(number) if number.denominator == 1 else float(number)


def _integers(numbers: Numbers) -> Iterator[str]:
    if numbers.least is None and numbers.most is None:
        yield "/0|-?[1-9][0-9]*/"
        return
    least = None if numbers.least is None else max(ceil(numbers.least), -MAX_LARGE)
    most = None if numbers.most is None else min(floor(numbers.most), MAX_LARGE)
    if least is None:
        least = -max(_MAX_WHOLE, 10 * abs(most or 0))
    if most is None:
        most = max(_MAX_WHOLE, 10 * abs(least))
    least += numbers.is_least_open and least == numbers.least
    most -= numbers.is_most_open and most == numbers.most
    if max(least, 0) <= most:
        yield f"/{'|'.join(_whole(max(least, 0), most))}/"
    if least < 0 and max(1, -most) <= -least:
        yield f"/-(?:{'|'.join(_whole(max(1, -most), -least))})/"


def _fractions(numbers: Numbers) -> Iterator[str]:
    """Numbers that are no integers; their whole parts are within the bounds, too."""
    if numbers.multiple_of is not None:
        return
    least, most = numbers.least, numbers.most
    ranges = (
        ("", 0 if least is None else ceil(least), None if most is None else floor(most) - 1),
        ("-", 0 if most is None else ceil(-most), None if least is None else floor(-least) - 1),
    )
    for sign, low, high in ranges:
        low, high = max(low, 0), _MAX_WHOLE if high is None else min(high, _MAX_WHOLE)
        if low <= high:
            yield f"/{sign}(?:{'|'.join(_whole(low, high))}){_DECIMALS}/"


def _whole(low: int, high: int) -> Iterator[str]:
    """Integers of a range that begins at 0 or above it, by their lengths."""
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        yield _digits(str(first), str(min(high, 10**length - 1)))


def _digits(low: str, high: str) -> str:
    """Numbers from `low` to `high`, of the same length."""
    if not low:
        return ""
    if set(low) == {"0"} and set(high) == {"9"}:
        return f"[0-9]{{{len(low)}}}"
    if low[0] == high[0]:
        return low[0] + _digits(low[1:], high[1:])
    rest = len(low) - 1
    options = [low[0] + _digits(low[1:], "9" * rest), high[0] + _digits("0" * rest, high[1:])]
    if int(high[0]) - int(low[0]) > 1:
        options.append(f"[{int(low[0]) + 1}-{int(high[0]) - 1}][0-9]{{{rest}}}")
    return f"(?:{'|'.join(options)})"
