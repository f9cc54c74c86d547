"""Names of modules in a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pagemill.quantization.patterns import Patterns

_PATTERN = "re:"
_WILDCARDS = re.compile(r"([*?])")
_OF_WILDCARD = {"*": ".*", "?": "."}


class ModuleNames:
    """Modules that a configuration lists: by name ("lm_head"), by whole components of it
    ("mlp.gate" is part of "model.layers.3.mlp.gate"), or by a pattern that begins with "re:".

    Raises:
        PatternError: a pattern is not supported.
    """

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._names: dict[str, int] = {}
        patterns: list[str] = []
        self._places: list[int] = []  # of patterns, in `entries`
        for place, entry in enumerate(entries):
            if entry.startswith(_PATTERN):
                patterns.append(entry.removeprefix(_PATTERN))
                self._places.append(place)
            else:
                self._names.setdefault(entry, place)
        self._patterns = Patterns(patterns)

    def first(self, module: str) -> int | None:
        """The index of the first entry that lists `module`."""
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        runs = (".".join(parts[begin:end]) for end in ends for begin in range(end))
        found = list(_places(self._names, runs))
        pattern = self._patterns.first(module)
        found += [] if pattern is None else [self._places[pattern]]
        return min(found, default=None)

    def __contains__(self, module: str) -> bool:
        return self.first(module) is not None


class WildcardNames:
    """As ModuleNames; an entry with `*`, any characters, or `?`, any one, stands for whole names.
    Lists may have an entry for each layer, so those with one `*` at an end are found without a
    pattern.

    Raises:
        PatternError: a pattern is not supported, or the other wildcards are too many.
    """

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._beginnings: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        others: list[str] = []
        self._places: list[int] = []  # of the others, in `entries`
        for place, entry in enumerate(entries):
            if entry.endswith("*") and not _is_expression(entry[:-1]):
                self._beginnings.setdefault(entry[:-1], place)
            elif entry.startswith("*") and not _is_expression(entry[1:]):
                self._ends.setdefault(entry[1:], place)
            else:
                others.append(_expression(entry))
                self._places.append(place)
        self._others = ModuleNames(others)

    def first(self, module: str) -> int | None:
        """The index of the first entry that lists `module`."""
        cuts = range(len(module) + 1)
        found = list(_places(self._beginnings, (module[:cut] for cut in cuts)))
        found += _places(self._ends, (module[cut:] for cut in cuts))
        other = self._others.first(module)
        found += [] if other is None else [self._places[other]]
        return min(found, default=None)

    def __contains__(self, module: str) -> bool:
        return self.first(module) is not None


def _places(entries: Mapping[str, int], names: Iterable[str]) -> Iterator[int]:
    return (entries[name] for name in names if name in entries)


def _is_expression(text: str) -> bool:
    return text.startswith(_PATTERN) or _WILDCARDS.search(text) is not None


def _expression(entry: str) -> str:
    if entry.startswith(_PATTERN) or not _is_expression(entry):
        return entry
    parts = [_OF_WILDCARD.get(part, re.escape(part)) for part in _WILDCARDS.split(entry)]
    return f"{_PATTERN}{''.join(parts)}$"
