"""Masks with which no array gets an item twice (`uniqueItems`), where the grammar would allow it.

A token is left out if it completes an item that the array has, or if after it nothing but such
items could be written: then there is always another token.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import numpy as np

from pagemill.structured.json_trace import Frame, JsonTrace, Paths, Position
from pagemill.structured.token_texts import Ids, TokenTexts

if TYPE_CHECKING:
    from llguidance import LLMatcher

_MAX_LOOKS = 128
"""Masks that are computed to look ahead, for one mask."""
_ENDS = frozenset(b'"]}')


class DistinctItems:
    """The state of one output."""

    def __init__(self, paths: Paths, texts: TokenTexts) -> None:
        """Begins an output."""
        self._paths = paths
        self._trace = JsonTrace(paths)
        self._texts = texts
        self._num_looks = 0
        self._may_come: dict[int, bool] = {}
        """What was found by looking ahead of where the text ends."""

    def accept(self, token_id: int) -> None:
        """Goes on with a token."""
        self._trace.accept(self._texts.tokens[token_id])
        self._may_come.clear()

    def rollback(self, num_tokens: int) -> None:
        """Takes the last tokens back."""
        self._trace.rollback(num_tokens)
        self._may_come.clear()

    @property
    def is_active(self) -> bool:
        """Whether the output is in an array of distinct items."""
        return any(frame.is_distinct for frame, _ in _frames(self._trace.position))

    def may_come(self, token_id: int, matcher: LLMatcher) -> bool:
        """Whether `restrict` leaves a token that `matcher` allows."""
        if not self.is_active:
            return True
        mask = np.zeros(len(self._texts.tokens) // 32 + 1, np.uint32)
        mask[token_id >> 5] = np.uint32(1 << (token_id & 31))
        self.restrict(mask, matcher)
        return bool(mask[token_id >> 5] >> (token_id & 31) & 1)

    def restrict(self, mask: np.ndarray, matcher: LLMatcher) -> None:
        """Takes tokens out of `mask`, which is what `matcher` allows."""
        self._num_looks = 0
        for ids in self._restrict(mask, self._trace):
            token = int(ids[0])
            if token not in self._may_come:
                self._may_come[token] = self._may_go_on(token, matcher, self._trace)
            if not self._may_come[token]:
                _take_out(mask, ids)

    def _restrict(self, mask: np.ndarray, trace: JsonTrace) -> list[Ids]:
        """Takes out tokens that may not come for sure; those that are to be looked at."""
        position = trace.position
        is_inside = position.is_inside_string
        found: list[Ids] = []
        for frame, depth in _frames(position):
            if not frame.is_distinct:
                continue
            _take_out(mask, self._texts.crossing(depth, is_inside=is_inside))
            written = trace.since(frame.start)
            if frame.used and not written:
                _take_out(mask, self._texts.whole)
            elif written:
                for used in frame.used:
                    if used.startswith(written):
                        self._avoid(mask, used, len(written), is_inside=is_inside)
            if depth == 1 and written.startswith(b"{"):
                self._avoid_order(mask, frame, written, is_inside=is_inside)
            if self._paths.is_ample(frame.keys):
                if not written and b"0" in frame.used:  # unlike other numbers, it ends by itself
                    _take_out(mask, self._texts.exactly(b"0", is_inside=False))
            else:
                found += self._ahead(frame, written, is_inside=is_inside)
                if depth == 0 and not is_inside and written:
                    found += self._texts.commas.values()
        return [allowed for ids in found if len(allowed := _kept(mask, ids))]

    def _avoid(self, mask: np.ndarray, used: bytes, at: int, *, is_inside: bool) -> None:
        """Takes out tokens that complete an item that is there, of which `at` bytes are written."""
        rest = used[at:]
        if used[-1] in _ENDS:
            if rest:
                _take_out(mask, self._texts.beginning(rest, is_inside=is_inside))
            return
        for end in (b",", b"]", b" "):
            _take_out(mask, self._texts.beginning(rest + end, is_inside=is_inside))
        if not rest:
            _take_out(mask, self._texts.beginning_blank)

    def _avoid_order(
        self, mask: np.ndarray, frame: Frame, written: bytes, *, is_inside: bool
    ) -> None:
        """Takes out tokens that close an object if it is there with its properties in another
        order. It may have more of them: only those without a name in the schema have no order."""
        end = b'"}' if is_inside else b"}"
        sorted_object = _sorted_object(written + end)
        if sorted_object is not None and any(
            _sorted_object(u) == sorted_object for u in frame.used
        ):
            _take_out(mask, self._texts.beginning(end, is_inside=is_inside))

    def _ahead(self, frame: Frame, written: bytes, *, is_inside: bool) -> list[Ids]:
        """Tokens that lead towards items that are there, without completing them."""
        found: dict[bytes, None] = {}
        for used in frame.used:
            if used.startswith(written):
                rest = used[len(written) :]
                ends = len(rest) + (used[-1] not in _ENDS)
                found |= dict.fromkeys(rest[:length] for length in range(1, ends))
        texts = (self._texts.exactly(text, is_inside=is_inside) for text in found)
        return [ids for ids in texts if len(ids)]

    def _may_go_on(self, token_id: int, matcher: LLMatcher, trace: JsonTrace) -> bool:
        """Whether any token may come behind a token."""
        self._num_looks += 1
        if self._num_looks > _MAX_LOOKS:
            return True
        ahead = matcher.deep_copy()
        if ahead.try_consume_tokens([token_id]) != 1:
            return True
        mask = np.frombuffer(ahead.compute_bitmask(), np.uint32).copy()
        trace.accept(self._texts.tokens[token_id])
        found = self._restrict(mask, trace)
        for ids in (*found, self._texts.blank):
            _take_out(mask, ids)
        may = bool(mask.any()) or any(self._may_go_on(int(ids[0]), ahead, trace) for ids in found)
        trace.rollback(1)
        return may


@functools.lru_cache(maxsize=1024)
def _sorted_object(text: bytes) -> str | None:
    """An object with its properties sorted by name; None if it is none, or not complete."""
    if not text.startswith(b"{"):
        return None
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return None


def _frames(position: Position) -> list[tuple[Frame, int]]:
    """The frames around a position, inner ones first, with how many are within each."""
    found: list[tuple[Frame, int]] = []
    frame = position.frame
    while frame is not None:
        found.append((frame, len(found)))
        frame = frame.outer
    return found


def _kept(mask: np.ndarray, ids: Ids) -> Ids:
    return ids[(mask[ids >> 5] >> (ids & 31).astype(np.uint32) & 1).astype(bool)]


def _take_out(mask: np.ndarray, ids: Ids) -> None:
    if len(ids):
        bits = (np.uint32(1) << (ids & 31).astype(np.uint32)).astype(np.uint32)
        np.bitwise_and.at(mask, ids >> 5, ~bits)
