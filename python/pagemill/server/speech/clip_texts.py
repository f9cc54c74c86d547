"""Text of clips that are written at once, in the order of the clips."""

from __future__ import annotations

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import Text
from pagemill.render.transcription.turns import Unmarked

_LENGTH = "length"


class ClipTexts:
    """What is written of each clip, without marks of `speakers` if there are some."""

    def __init__(self, num_clips: int, *, speakers: bool) -> None:
        self._held = [""] * num_clips
        self._reasons: list[str | None] = [None] * num_clips
        self._current = 0  # the clip whose text is returned as it comes
        self._has_text = False
        self._unmarked = [Unmarked() for _ in range(num_clips)] if speakers else None

    @property
    def ended(self) -> bool:
        """Whether the text of all clips was returned."""
        return self._current == len(self._held)

    @property
    def finish_reason(self) -> str | None:
        """Why the text ended: for its length if that of one clip did."""
        return _LENGTH if _LENGTH in self._reasons else self._reasons[-1]

    @property
    def was_aborted(self) -> bool:
        """Whether the operator ended the text of a clip."""
        return "abort" in self._reasons

    def add(self, at: int, delta: ChoiceDelta) -> str:
        """Adds the next delta of the clip with the number `at`. Returns the text that comes next;
        "" if it is not known yet."""
        added = "".join(e.text for e in delta.events if isinstance(e, Text))
        if self._unmarked is not None:
            added = self._unmarked[at].add(added, ends=delta.finish_reason is not None)
        self._held[at] += added
        self._reasons[at] = delta.finish_reason or self._reasons[at]
        if at != self._current:
            return ""
        text = ""
        while not self.ended:
            text += self._held[self._current]
            self._held[self._current] = ""
            if self._reasons[self._current] is None:
                break
            self._current += 1
        if not self._has_text:
            text = text.lstrip()
        self._has_text = self._has_text or bool(text)
        return text
