"""Finds the markers of output formats: as tokens, or within text if they are not tokens.

A vocabulary that has a marker as one added token writes it with that token only: text that looks
like the marker, such as a quotation, is text then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pagemill.render.events import Piece


class MarkerFinder:
    """Cuts the pieces of one choice at markers.

    Holds back less text than the longest marker has, and looks at each character a bounded number
    of times.
    """

    __slots__ = ("_by_id", "_held", "_longest", "_pattern", "_texts")

    def __init__(self, markers: Sequence[str], by_id: Mapping[int, str]) -> None:
        """Looks for `markers`.

        Args:
          markers: what is written, none empty.
          by_id: those of them that are tokens, by id.
        """
        self._by_id = by_id
        self._texts = tuple(sorted(set(markers) - set(by_id.values()), key=len, reverse=True))
        self._longest = len(self._texts[0]) if self._texts else 0
        self._pattern = re.compile("|".join(map(re.escape, self._texts))) if self._texts else None
        self._held = ""

    def is_plain(self, piece: Piece) -> bool:
        """True if `piece` is neither a marker nor a part of one: it needs no `push`."""
        return self._pattern is None and piece.token_id not in self._by_id

    def push(self, piece: Piece) -> Iterator[tuple[str, bool]]:
        """Yields texts and markers, each with whether it is a marker."""
        marker = self._by_id.get(piece.token_id)
        if marker is None:
            yield from self._scan(piece.text)
            return
        before = self.rest() + piece.text.removesuffix(marker)  # half a character, if any
        if before:
            yield before, False
        yield marker, True

    def rest(self) -> str:
        """Returns what was held back, since nothing follows that could make it a marker."""
        held, self._held = self._held, ""
        return held

    def _scan(self, text: str) -> Iterator[tuple[str, bool]]:
        if self._pattern is None:
            if text:
                yield text, False
            return
        window = self.rest() + text
        done = 0
        for found in self._pattern.finditer(window):
            if found.start() > done:
                yield window[done : found.start()], False
            yield found[0], True
            done = found.end()
        keep = self._unsure(window, done)
        if len(window) - keep > done:
            yield window[done : len(window) - keep], False
        self._held = window[len(window) - keep :]

    def _unsure(self, window: str, done: int) -> int:
        # The longest end of the window, from `done` on, that begins a marker.
        for length in range(min(self._longest - 1, len(window) - done), 0, -1):
            tail = window[-length:]
            if any(text.startswith(tail) for text in self._texts):
                return length
        return 0
