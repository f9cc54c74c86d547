"""How the benchmarks report."""

from __future__ import annotations

import sys
from typing import Any, cast

_MEANS = {
    "input_tokens": "input tokens per request",
    "of_them_cached": "cached of these",
    "output_tokens": "output tokens per request",
}
"""Entries that are means over requests."""


def describe(report: dict[str, Any]) -> str:
    """Returns a report for people: one line an entry, numbers with three digits."""
    labels = {name: _MEANS.get(name, name.replace("_", " ")) for name in report}
    width = max(len(label) for label in labels.values())
    lines: list[str] = []
    for name, value in report.items():
        if isinstance(value, dict):
            entries = cast(dict[str, Any], value)
            shown = "  ".join(f"{key} {_short(item)}" for key, item in entries.items())
        else:
            shown = _short(value)
        lines.append(f"{labels[name]:<{width}}  {shown}")
    return "\n".join(lines)


def note(text: str) -> None:
    """Says what is going on, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)
