"""Regular expressions from a file that came with the model, matched in time linear in a text.

    patterns = Patterns([r".*\\.down_proj", r"model\\.layers\\.[01]\\..*"])
    patterns.first("model.layers.7.mlp.down_proj")  # 0
    patterns.first("lm_head")                       # None

Python's `re` backtracks, which takes hours with a malicious pattern. Here all patterns become one
automaton whose sets of states are computed on demand and cached. That work is bounded, too.

Source: Ken Thompson, "Regular Expression Search Algorithm", CACM 11(6), 1968.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pagemill.quantization.pattern_syntax import (
    Anchor,
    Chars,
    Choice,
    Node,
    PatternError,
    Repeat,
    parse,
)

_MAX_STATES = 2**14  # of all patterns together: about their characters, repetitions written out
_MAX_WORK = 2**18  # visits of states in computing sets of them, some 0.2 seconds
_NONE = 2**31  # an index behind that of any pattern


@dataclass(frozen=True, slots=True)
class _Split:
    ways: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    chars: Chars
    then: int


@dataclass(frozen=True, slots=True)
class _Check:
    anchor: Anchor
    then: int


@dataclass(frozen=True, slots=True)
class _Match:
    pattern: int


@dataclass(slots=True, eq=False)
class _Set:
    """The state after some text: the states that read a character, and the first pattern that
    matches here, or here if the text ends."""

    readers: tuple[int, ...]
    match: int
    match_at_end: int
    after: dict[str, _Set] = field(default_factory=dict[str, "_Set"])


class Patterns:
    """Finds the first of several patterns that matches a text from its beginning (`re.match`).

    Raises:
        PatternError: one is not valid or not supported.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._states: list[_Split | _Read | _Check | _Match] = []
        self._sets: dict[tuple[tuple[int, ...], int, int], _Set] = {}
        self._work = 0
        starts: list[int] = []
        for index, pattern in enumerate(patterns):
            try:
                starts.append(self._build(parse(pattern), self._add(_Match(index))))
            except PatternError as error:
                raise PatternError(
                    f"quantization_config: the pattern {pattern!r:.60} is not supported;"
                    f" supported: {error}"
                ) from error
        self._start = self._set(starts, at_start=True)

    def first(self, text: str) -> int | None:
        """The index of the first pattern that matches.

        Raises:
            PatternError: the patterns are too complex for this many different texts.
        """
        at = self._start
        found = at.match
        for char in text:
            if not at.readers:
                break
            following = at.after.get(char)
            if following is None:
                following = at.after[char] = self._step(at, char)
            at = following
            found = min(found, at.match)
        else:
            found = min(found, at.match_at_end)
        return None if found == _NONE else found

    def _add(self, state: _Split | _Read | _Check | _Match) -> int:
        if len(self._states) >= _MAX_STATES:
            raise PatternError(f"patterns of {_MAX_STATES} states together")
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: Node, then: int) -> int:
        """Adds states that match `node` and continue at `then`; returns the first. There is at
        least one, so that the bound on their number bounds the work."""
        if isinstance(node, Chars):
            return self._add(_Read(node, then))
        if isinstance(node, Anchor):
            return self._add(_Check(node, then))
        if isinstance(node, Choice):
            return self._add(_Split(tuple(self._build(option, then) for option in node.options)))
        if isinstance(node, Repeat):
            return self._build_repeat(node, then)
        if not node.parts:
            return self._add(_Split((then,)))
        for part in reversed(node.parts):
            then = self._build(part, then)
        return then

    def _build_repeat(self, node: Repeat, then: int) -> int:
        if node.most == 0:
            return self._add(_Split((then,)))
        at = then
        if node.most is None:
            at = self._add(_Split(()))
            self._states[at] = _Split((self._build(node.inner, at), then))
        else:
            for _ in range(node.most - node.least):
                at = self._add(_Split((self._build(node.inner, at), then)))
        for _ in range(node.least):
            at = self._build(node.inner, at)
        return at

    def _step(self, at: _Set, char: str) -> _Set:
        self._count(len(at.readers))
        following: list[int] = []
        for reader in at.readers:
            state = self._states[reader]
            if isinstance(state, _Read) and char in state.chars:
                following.append(state.then)
        return self._set(following, at_start=False)

    def _set(self, states: Iterable[int], *, at_start: bool) -> _Set:
        """All states reachable from `states` without reading a character."""
        readers: set[int] = set()
        matches = [_NONE, _NONE]  # here; here if the text ends
        open_ends = [(state, False) for state in states]
        seen = set(open_ends)
        while open_ends:
            index, ended = open_ends.pop()
            state = self._states[index]
            ways: Iterable[tuple[int, bool]] = ()
            if isinstance(state, _Split):
                ways = ((way, ended) for way in state.ways)
            elif isinstance(state, _Check):
                if state.anchor.at_end or at_start:
                    ways = ((state.then, ended or state.anchor.at_end),)
            elif isinstance(state, _Match):
                matches[ended] = min(matches[ended], state.pattern)
            elif not ended:
                readers.add(index)
            new = [way for way in ways if way not in seen]
            seen.update(new)
            open_ends += new
        self._count(len(seen))
        key = (tuple(sorted(readers)), matches[0], min(matches))
        return self._sets.setdefault(key, _Set(*key))

    def _count(self, visits: int) -> None:
        self._work += visits
        if self._work > _MAX_WORK:
            raise PatternError(
                "quantization_config: its patterns take too long to match; list modules by name"
            )
