"""Names of modules in a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.quantization.patterns import Patterns

_PATTERN = "re:"


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
        found = [self._names[run] for run in runs if run in self._names]
        pattern = self._patterns.first(module)
        found += [] if pattern is None else [self._places[pattern]]
        return min(found, default=None)

    def __contains__(self, module: str) -> bool:
        return self.first(module) is not None
