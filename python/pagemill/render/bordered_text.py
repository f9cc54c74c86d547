"""Text between two markers, without the line breaks beside them.

text = BorderedText(after_marker=True)
text.push("\\n\\nHello")   # "Hello"
text.push(".\\n")         # ".": the line break is dropped if a marker follows
text.push("Bye")         # "\\nBye"
"""

from __future__ import annotations

_BREAKS = "\n\r"
_SPACE = "\n\r\t "
_MAX_HELD = 64  # a longer run of white space is not a border


class BorderedText:
    """Holds back white space at the end of the text as long as a marker may follow it.

    The result does not depend on how the text was portioned, except how long runs of white
    space are cut into parts.
    """

    __slots__ = ("_after_marker", "_at_border", "_held", "holds_back")

    def __init__(self, *, after_marker: bool, holds_back: bool = True) -> None:
        """Begins a text.

        Args:
          after_marker: line breaks at its beginning are dropped.
          holds_back: a marker may follow, so white space at its end waits.
        """
        self._after_marker = after_marker
        self._at_border = after_marker
        self._held = ""
        self.holds_back = holds_back

    def push(self, text: str) -> str:
        """Adds `text`; returns what is now certain."""
        if self._after_marker:
            text = text.lstrip(_BREAKS)
            if not text:
                return ""
            self._after_marker = False
        if self._held:
            text, self._held = self._held + text, ""
        if self.holds_back and text[-1] in _SPACE:
            certain = text.rstrip(_SPACE)
            if len(text) - len(certain) <= _MAX_HELD:
                self._held = text[len(certain) :]
                text = certain
        if text:
            self._at_border = False
        return text

    def rest(self) -> str:
        """Returns what was held back: no marker follows. White space after a marker is dropped."""
        held, self._held = self._held, ""
        return "" if self._at_border else held
