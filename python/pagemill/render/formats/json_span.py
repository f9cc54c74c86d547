"""Where a JSON object ends, found as its text comes, without parsing it."""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\\x00-\x1f]')


class JsonSpan:
    """Follows brackets and strings of one value that begins with a bracket.

    `in_string`: the text so far ends within a string. Strings hold no control characters: a line
    break ends a string that the model forgot to end.
    """

    __slots__ = ("_depth", "_escaped", "in_string")

    def __init__(self, depth: int = 0) -> None:
        """`depth`: brackets of the value that were open before the first text."""
        self._depth = depth
        self._escaped = False
        self.in_string = False

    def push(self, text: str, begin: int = 0) -> int | None:
        """Returns where in `text`, read from `begin` on, the value ends; None if it continues."""
        at = begin
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self.in_string else _OUTSIDE).search(text, at)
            if found is None:
                return None
            at = found.end()
            char = found[0]
            if char == "\\":
                self._escaped = True
            elif self.in_string:
                self.in_string = False
            elif char == '"':
                self.in_string = True
            elif char in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return at
        return None
