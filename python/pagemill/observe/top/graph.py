"""A graph of characters."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = " ▁▂▃▄▅▆▇█"


def graph(values: Sequence[float], width: int, height: int, top: float = 0.0) -> str:
    """Lines of `width` characters: a column for each of the last values, the newest at the right.

    Columns begin at zero; the highest is `top`, or the largest value if that is larger.
    """
    shown = list(values)[-width:] if width > 0 else []
    top = max([top, *shown])
    eighths = [round(8 * height * max(value, 0.0) / top) if top else 0 for value in shown]
    lines: list[str] = []
    for row in reversed(range(height)):
        line = "".join(_LEVELS[min(max(level - 8 * row, 0), 8)] for level in eighths)
        lines.append(line.rjust(width))
    return "\n".join(lines)
