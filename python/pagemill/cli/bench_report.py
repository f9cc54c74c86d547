"""How the benchmarks report."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pagemill.benchmark.step_profile import Grouping, RunProfile

PROFILE_HELP = (
    "show where the time of steps went: in which ops (default) or in which layers (clocks take"
    " about 0.1 us an op)"
)

TRACE_HELP = (
    "write the steps of the measured runs and their ops into a file in Chrome's trace format, for"
    " Perfetto (the first 200,000 events)"
)


def show(
    report: dict[str, Any], profile: RunProfile | None, by: Grouping | None, *, as_json: bool
) -> None:
    """Prints a report, and where the time of its steps went if that was measured."""
    if as_json:
        measured = {"profile": profile.as_json()} if profile else {}
        print(json.dumps(report | measured, indent=2))
        return
    print(describe(report))
    if profile:
        print(f"\n{profile.table(by or 'ops')}")


def describe(report: dict[str, Any]) -> str:
    """Returns a report for people: one line an entry, numbers with three digits."""
    width = max(len(name) for name in report)
    lines: list[str] = []
    for name, value in report.items():
        if isinstance(value, dict):
            entries = cast(dict[str, Any], value)
            shown = "  ".join(f"{key} {_short(item)}" for key, item in entries.items())
        else:
            shown = _short(value)
        lines.append(f"{name.replace('_', ' '):<{width}}  {shown}")
    return "\n".join(lines)


def note(text: str) -> None:
    """Says what is going on, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)
