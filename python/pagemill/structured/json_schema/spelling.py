"""The one way in which a value is written, and literals of Lark."""

from __future__ import annotations

import json
from fractions import Fraction


def json_text(text: str) -> str:
    """A string as JSON."""
    return json.dumps(text, ensure_ascii=False)


def lark_literal(text: str) -> str:
    """Exactly `text`, in a grammar."""
    return json.dumps(text, ensure_ascii=False)


def decimal(number: Fraction) -> str:
    """A number whose decimals end, in full."""
    digits = 0
    while number.denominator != 1:
        number *= 10
        digits += 1
    text = str(abs(int(number))).rjust(digits + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{text[:-digits]}.{text[-digits:]}" if digits else f"{sign}{text}"
