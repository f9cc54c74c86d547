"""Regular expressions that say where a field of an output begins or ends, taken apart.

    anchors("open", r"\\s*<function=(?P<name>[^>]+)>")
    [(Space(), "<function=", Words("[^>]+", "name"), ">")]

They come with a checkpoint, so they never run on an output as they are: what is literal in them
becomes markers of states, and what is between two literals the pattern of a header, whose text is
short. That takes literals, white space, groups of alternatives, and repeated classes of
characters; anything else is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pagemill.render.errors import RenderError

_MAX_ALTERNATIVES = 32
_MAX_CHARS = 1024
_SPACE = re.compile(r"\\s(?:[*+?]\??)?|(?:\\n|\n|\\t| )[*+?]\??")
_CLASS = re.compile(r"(?P<one>\\[wdSDW]|\.|\[\^?\]?(?:[^\]\\]|\\.)+\])(?P<times>[*+]\??)")
_NAMED = re.compile(r"\(\?P<(?P<name>[A-Za-z_]\w*)>")
_ESCAPED = re.compile(r"\\(?P<char>[^\w\s]|[nt])")
_END = re.compile(r"\$|\\Z")
_SPECIAL = frozenset("\\^$.|?*+()[]{}")
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Words:
    """Repeated characters of a class. `name`: of the group that captures them, if one does."""

    pattern: str
    name: str = ""

    @property
    def source(self) -> str:
        """A regular expression for them."""
        return f"(?P<{self.name}>{self.pattern})" if self.name else self.pattern


@dataclass(frozen=True, slots=True)
class Space:
    """Any white space, also none."""

    source = r"\s*+"  # all there is, never less: no other way is tried


@dataclass(frozen=True, slots=True)
class End:
    """The end of the output."""

    source = r"\Z"


Part = str | Words | Space | End
Sequence = tuple[Part, ...]


def anchors(where: str, pattern: str) -> list[Sequence]:
    """The alternatives of `pattern`, each a sequence of parts in which no two texts are neighbours.

    Args:
      where: the pattern is, for messages.
      pattern: a regular expression.

    Raises:
      RenderError: it has what this does not take apart.
    """
    if len(pattern) > _MAX_CHARS:
        raise RenderError(f"{where} has more than {_MAX_CHARS} characters")
    reader = _Reader(where, pattern)
    found = reader.alternatives()
    if not reader.is_at_end:
        raise reader.refusal()
    return list(dict.fromkeys(map(_joined, found)))


class _Reader:
    def __init__(self, where: str, pattern: str) -> None:
        self._where = where
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._pattern)

    def refusal(self) -> RenderError:
        return RenderError(
            f"{self._where}: {self._pattern[self._at :][:40]!r} is not taken apart; texts, white"
            " space, groups of alternatives and repeated classes are"
        )

    def alternatives(self) -> list[Sequence]:
        found = self._sequence()
        while self._takes("|"):
            found += self._sequence()
        return found

    def _sequence(self) -> list[Sequence]:
        found: list[Sequence] = [()]
        while not self.is_at_end and self._pattern[self._at] not in "|)":
            parts = self._item()
            found = [before + part for before in found for part in parts]
            if len(found) > _MAX_ALTERNATIVES:
                raise RenderError(f"{self._where} has more than {_MAX_ALTERNATIVES} alternatives")
        return found

    def _item(self) -> list[Sequence]:
        """What the next item may be."""
        if self._match(_SPACE):
            return [(Space(),)]
        if self._match(_END):
            return [(End(),)]
        if (named := self._match(_NAMED)) is not None:
            one = self._match(_CLASS)
            if one is None or not self._takes(")"):
                raise self.refusal()
            return [(self._words(one[0], named["name"]),)]
        if (one := self._match(_CLASS)) is not None:
            return [(self._words(one[0]),)]
        if self._takes("(?:") or self._takes("("):
            return self._group()
        if (escaped := self._match(_ESCAPED)) is not None:
            return self._literal(_ESCAPES.get(escaped["char"], escaped["char"]))
        char = self._pattern[self._at]
        if char in _SPECIAL:
            raise self.refusal()
        self._at += 1
        return self._literal(char)

    def _words(self, pattern: str, name: str = "") -> Words:
        try:
            re.compile(pattern)
        except re.error:
            raise self.refusal() from None
        return Words(pattern, name)

    def _literal(self, char: str) -> list[Sequence]:
        if self._takes("?"):
            return [(char,), ()]
        if not self.is_at_end and self._pattern[self._at] in "*+{":
            raise self.refusal()
        return [(char,)]

    def _group(self) -> list[Sequence]:
        self._depth += 1
        if self._depth > 8:
            raise self.refusal()
        found = self.alternatives()
        self._depth -= 1
        if not self._takes(")"):
            raise self.refusal()
        if self._takes("?"):
            return [*found, ()]
        if not self.is_at_end and self._pattern[self._at] in "*+{":
            raise self.refusal()
        return found

    def _takes(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found


def _joined(parts: Sequence) -> Sequence:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif not (isinstance(part, Space) and joined and isinstance(joined[-1], Space)):
            joined.append(part)
    return tuple(joined)
