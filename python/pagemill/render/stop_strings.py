"""Ends a text at the first of several strings, without letting the start of one slip out.

    stop = StopStringFilter(["\\nUser:", "###"])
    stop.push("Hello.\\nUs")   # ("Hello.", None): "\\nUs" may become "\\nUser:"
    stop.push("ed")            # ("\\nUsed", None)
    stop.push("##")            # ("", None)
    stop.push("# x")           # ("", "###")

The result does not depend on how the text was portioned.
"""

from collections import deque
from collections.abc import Container, Sequence

from pagemill.render.events import NO_TOKEN, Piece

MAX_STOP_CHARS = 4096


class StopStringFilter:
    """Holds back as much text as might become a stop string. Not thread-safe.

    After a match it emits nothing more.
    """

    def __init__(self, stop: Sequence[str], include: bool = False) -> None:
        """Stops at the first occurrence of any of `stop`; where two end at the same place, at the
        one that begins first.

        Args:
          stop: the strings, none empty.
          include: is the stop string part of the text?

        Raises:
          ValueError: a string is empty or longer than MAX_STOP_CHARS.
        """
        if any(not 0 < len(text) <= MAX_STOP_CHARS for text in stop):
            raise ValueError(f"a stop string has 1 to {MAX_STOP_CHARS} characters")
        self._stop = sorted(set(stop), key=lambda text: (-len(text), text))
        self._hold = len(self._stop[0]) - 1 if self._stop else 0
        self._first_chars = frozenset(text[0] for text in self._stop)
        self._include = include
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Adds `text`; returns the text that is now certain, and the stop string once it is met."""
        if self._matched is not None:
            return "", self._matched
        window = self._held + text
        match = self._first_match(window, len(self._held))
        if match is not None:
            start, found = match
            self._held, self._matched = "", found
            return window[: start + len(found)] if self._include else window[:start], found
        keep = self._unsure_suffix(window)
        self._held = window[len(window) - keep :]
        return window[: len(window) - keep], None

    def flush(self) -> str:
        """Returns what was held back, since nothing follows."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, window: str, old: int) -> tuple[int, str] | None:
        # First means ends first, as it would if the text came character by character; `_stop` is
        # sorted longest first, so of those that end there the one that begins first wins.
        best: tuple[int, int, str] | None = None
        for rank, text in enumerate(self._stop):
            at = window.find(text, max(0, old - len(text) + 1))
            if at >= 0 and (best is None or (at + len(text), rank) < best[:2]):
                best = (at + len(text), rank, text)
        return None if best is None else (best[0] - len(best[2]), best[2])

    def _unsure_suffix(self, window: str) -> int:
        # The longest end of the window that begins a stop string.
        for length in range(min(self._hold, len(window)), 0, -1):
            if window[-length] in self._first_chars:
                tail = window[-length:]
                if any(text.startswith(tail) for text in self._stop):
                    return length
        return 0


class StopPieces:
    """A `StopStringFilter` for pieces: text that is held back keeps its tokens."""

    def __init__(self, stop: StopStringFilter, markers: Container[int] = ()) -> None:
        """Filters by `stop`. A match alone cuts pieces whose tokens are `markers`."""
        self._stop = stop
        self._markers = markers
        self._held: deque[Piece] = deque()
        self._spare = 0  # characters of the first piece that may come out

    def push(self, piece: Piece) -> tuple[list[Piece], str | None]:
        """Adds `piece`; returns the pieces that are certain, and the stop string once it is met."""
        self._held.append(piece)
        text, matched = self._stop.push(piece.text)
        return self._released(len(text), matched is not None), matched

    def flush(self) -> list[Piece]:
        """Returns what was held back, since nothing follows."""
        return self._released(len(self._stop.flush()), True)

    def _released(self, num_chars: int, is_last: bool) -> list[Piece]:
        self._spare += num_chars
        pieces: list[Piece] = []
        while self._held and len(self._held[0].text) <= self._spare:
            piece = self._held.popleft()
            self._spare -= len(piece.text)
            pieces.append(piece)
        if self._spare and (is_last or self._held[0].token_id not in self._markers):
            first = self._held.popleft()
            pieces.append(Piece(first.text[: self._spare], NO_TOKEN, False))
            self._held.appendleft(first._replace(text=first.text[self._spare :]))
            self._spare = 0
        return pieces
