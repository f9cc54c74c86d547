"""The names of a model that is part of another: those of the standalone model with a prefix.

names = NamePrefixes().within("language_model.")
names.whole("model.norm.weight")   # language_model.model.norm.weight
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamePrefixes:
    """`steps` are pairs (behind, prefix), that of the outermost model first: of names that begin
    with `behind`, the larger model has `prefix` behind it, and all others as they are."""

    steps: tuple[tuple[str, str], ...] = ()

    def within(self, prefix: str, behind: str = "") -> NamePrefixes:
        """The names of a part of this model."""
        return NamePrefixes((*self.steps, (behind, prefix)))

    def whole(self, name: str) -> str:
        """The name in the checkpoint of what the part calls `name`."""
        for behind, prefix in reversed(self.steps):
            if name.startswith(behind):
                name = behind + prefix + name[len(behind) :]
        return name
