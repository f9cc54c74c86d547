"""Subtitles in the formats SubRip (.srt) and WebVTT (.vtt)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Line(NamedTuple):
    """What is said from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    text: str


def srt(lines: Iterable[Line]) -> str:
    """A file of numbered lines."""
    return "".join(
        f"{number}\n{_span(line, ',')}\n{_text(line)}\n\n"
        for number, line in enumerate(lines, start=1)
    )


def vtt(lines: Iterable[Line]) -> str:
    """A file that begins with its name."""
    return "WEBVTT\n\n" + "".join(f"{_span(line, '.')}\n{_text(line)}\n\n" for line in lines)


def _text(line: Line) -> str:
    # An arrow and an empty line mean something in both formats.
    return " ".join(line.text.replace("-->", "->").split())


def _span(line: Line, mark: str) -> str:
    return f"{_time(line.start_s, mark)} --> {_time(line.end_s, mark)}"


def _time(seconds: float, mark: str) -> str:
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{seconds:02}{mark}{milliseconds:03}"
