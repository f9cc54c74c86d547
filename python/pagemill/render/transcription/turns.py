"""What speakers say in turns, as a model writes it: times in seconds and speakers in brackets.

    [0.28][S01]Hello there.[1.94][2.10][S02]Hi! How are you?[3.4]

turns("[0.28][S01]Hello there.[1.94]", clip_s=30.0)  # [Turn(0.28, 1.94, "S01", "Hello there.")]

Times may be `MM:SS` or `HH:MM:SS`, too. Source: `MossTranscribeDiarizeProcessor` of `transformers`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_TIME = rf"{_NUMBER}(?::{_NUMBER}){{0,2}}"
_SPEAKER = r"S\d{1,6}"
_BEGIN_OR_END = re.compile(rf"\[({_TIME})\](?:\[({_SPEAKER})\])?")
_MARK = re.compile(rf"\[(?:{_TIME}|{_SPEAKER})\]")
_BEGUN = re.compile(r"\[[\dS.:]*")
_LONGEST = 43  # characters of a mark
_SIXTY = 60


class Turn(NamedTuple):
    """What a speaker says from `start_s` to `end_s` in a clip."""

    start_s: float
    end_s: float
    speaker: str
    text: str


def turns(text: str, clip_s: float) -> list[Turn]:
    """The turns of an output about a clip of `clip_s` seconds. One whose end is missing ends with
    the clip; what no speaker says, and turns without words, are left out, and so are marks of
    speakers without a time."""
    found: list[Turn] = []
    start, speaker, begin = 0.0, "", 0

    def close(words: str, end: float) -> None:
        if speaker and (said := without_marks(words)):
            found.append(Turn(start, max(start, end), speaker, said))

    for mark in _BEGIN_OR_END.finditer(text):
        time = min(_seconds(mark[1]), clip_s)
        close(text[begin : mark.start()], time)
        start, speaker, begin = time, mark[2] or "", mark.end()
    close(text[begin:], clip_s)
    return found


class Unmarked:
    """An output without its marks, as it comes: a space is in place of those between words."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a mark
        self._space = ""  # behind the last word
        self._has_words = False
        self._is_marked = False  # behind the last word

    def add(self, text: str, *, ends: bool) -> str:
        """What comes next if `text` is added, behind which the output `ends` or not."""
        text = self._held + text
        begin = len(text)
        if not ends:
            last = text.rfind("[", max(0, begin - _LONGEST))
            if last >= 0 and _BEGUN.fullmatch(text, last):
                begin = last
        self._held = text[begin:]
        written = ""
        for at, part in enumerate(_MARK.split(text[:begin])):
            self._is_marked = self._is_marked or at > 0
            written += self._words(part)
        return written

    def _words(self, part: str) -> str:
        """A part between marks, with the space in front of it, and none behind it."""
        words = part.strip()
        if not words:
            self._space += part
            return ""
        at = part.index(words)
        space = " " if self._is_marked else self._space + part[:at]
        space = space if self._has_words else ""
        self._space = part[at + len(words) :]
        self._has_words, self._is_marked = True, False
        return space + words


def without_marks(text: str) -> str:
    """A whole output without its marks."""
    return Unmarked().add(text, ends=True)


def _seconds(time: str) -> float:
    seconds = 0.0
    for part in time.split(":"):
        seconds = _SIXTY * seconds + float(part)
    return seconds
