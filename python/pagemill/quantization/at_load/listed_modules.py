"""Modules that the configuration of quantization at load lists.

ignored = ListedModules(["lm_head", "re:.*down_proj"])
"model.layers.0.mlp.down_proj" in ignored                 # True
ignored.unmatched(["model.layers.0.mlp.down_proj"])       # ["lm_head"]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pagemill.quantization.module_names import ModuleNames


class ListedModules:
    """Modules that `entries` list, as `ignore` and `targets` of a compressed-tensors checkpoint do
    (see `ModuleNames`).

    Raises:
        PatternError: a pattern is not supported.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = entries
        self._names = ModuleNames(entries)

    def __contains__(self, module: str) -> bool:
        return module in self._names

    def first(self, module: str) -> int | None:
        """The index of the first entry that lists `module`."""
        return self._names.first(module)

    def unmatched(self, modules: Collection[str]) -> list[str]:
        """The entries that list none of `modules`."""
        firsts = {self._names.first(module) for module in modules}
        # Another entry may have been first for all that these list.
        others = (entry for i, entry in enumerate(self._entries) if i not in firsts)
        return [
            entry for entry in others if not any(map(ModuleNames([entry]).__contains__, modules))
        ]
