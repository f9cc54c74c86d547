"""The tokens of a vocabulary by their texts, as parts of JSON."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BLANKS = b" \t\r\n"
_OPENERS = frozenset(b'"[{')
_NO_WORD = frozenset(b'"[]{},: ')
_STRUCTURE = re.compile(rb'["\[\]{}, \t\r\n]')
_WHOLE = re.compile(rb'"(?:[^"\\]|\\.)*"|[-0-9a-z][^,\]} ]*[,\]} ]|[\[{].*[\]}]', re.DOTALL)
_MAX_DEPTH = 8

Ids = NDArray[np.int64]


class TokenTexts:
    """Tokens as they stand outside, or inside of a string. Their texts have no white space but
    one blank where it ends a number or a word."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        """`tokens`: the bytes of each; special ones have none."""
        self.tokens = tokens
        self._sorted: list[tuple[list[bytes], Ids]] = []
        self.blank = np.array([i for i, t in enumerate(tokens) if t and not t.strip(_BLANKS)])
        """Tokens that are white space."""
        blanks = {bytes([each]) for each in _BLANKS}
        self.beginning_blank = np.array([i for i, t in enumerate(tokens) if t[:1] in blanks])
        """Tokens that begin with white space."""
        self._crossing: list[list[Ids]] = []
        self.whole: Ids
        """Tokens that begin an item and complete it."""
        self.commas: dict[bytes, Ids] = {}
        """Tokens that end an item by a comma and may open the next one, by what they open."""
        for is_inside in (False, True):
            self._index(tokens, is_inside=is_inside)

    def beginning(self, text: bytes, *, is_inside: bool) -> Ids:
        """Tokens whose text begins with `text`, which is not empty."""
        texts, ids = self._sorted[is_inside]
        end = text[:-1] + bytes([text[-1] + 1])  # no token of UTF-8 has a byte 0xFF
        return ids[bisect_left(texts, text) : bisect_left(texts, end)]

    def exactly(self, text: bytes, *, is_inside: bool) -> Ids:
        """Tokens with this text."""
        texts, ids = self._sorted[is_inside]
        return ids[bisect_left(texts, text) : bisect_left(texts, text + b"\0")]

    def crossing(self, depth: int, *, is_inside: bool) -> Ids:
        """Tokens with more than an opener behind a comma, or anything in front of it. The comma
        is between items of the array that is `depth` containers further out."""
        levels = self._crossing[is_inside]
        return levels[min(depth, len(levels) - 1)]

    def _index(self, tokens: Sequence[bytes], *, is_inside: bool) -> None:
        rows: list[tuple[bytes, int]] = []
        crossing: list[list[int]] = [[] for _ in range(_MAX_DEPTH)]
        commas: dict[bytes, list[int]] = {}
        for index, token in enumerate(tokens):
            if not token:
                continue
            text, depths = _text(token, is_inside=is_inside)
            rows.append((text, index))
            opens_next = text[:1] == b"," and _OPENERS.issuperset(text[1:])
            if not is_inside and opens_next:
                commas.setdefault(text[1:], []).append(index)
            for depth in depths:
                if not (opens_next and depth == 0 and not is_inside) and depth < _MAX_DEPTH:
                    crossing[depth].append(index)
        rows.sort()
        if not is_inside:
            whole = (index for text, index in rows if _WHOLE.match(text))
            self.whole = np.array([*whole], np.int64)
        self._sorted.append(([text for text, _ in rows], np.array([i for _, i in rows], np.int64)))
        self._crossing.append([np.array(each, np.int64) for each in crossing])
        if not is_inside:
            self.commas = {text: np.array(ids, np.int64) for text, ids in commas.items()}


def _text(token: bytes, *, is_inside: bool) -> tuple[bytes, set[int]]:
    """The text of a token, and how many containers further out the
    arrays or objects are whose commas it has."""
    if b'"' not in token if is_inside else not _STRUCTURE.search(token):
        return token, set()
    text = bytearray()
    depths: set[int] = set()
    depth = 0
    is_escaped = False
    for byte in token:
        if is_inside:
            text.append(byte)
            if is_escaped:
                is_escaped = False
            elif byte == 0x5C:
                is_escaped = True
            elif byte == 0x22:
                is_inside = False
        elif byte in _BLANKS:
            if text and text[-1] not in _NO_WORD:
                text.append(0x20)
        else:
            text.append(byte)
            if byte == 0x22:
                is_inside = True
            elif byte in b"[{":
                depth -= 1
            elif byte in b"]}":
                depth += 1
            elif byte == 0x2C and depth >= 0:
                depths.add(depth)
    return bytes(text), depths
