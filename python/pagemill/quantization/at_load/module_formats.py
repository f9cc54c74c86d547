"""The format of each module of a model that is quantized at load.

formats = ModuleFormats("int4", [("down_proj", "int8")])
formats.of("model.layers.0.mlp.down_proj")   # "int8"
formats.section({"model.layers.0.mlp.down_proj": "int8", ...})   # quantization_config
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.listed_modules import ListedModules

_GROUPS = "config_groups"


class ModuleFormats:
    """That of the first of `targets`, pairs of an entry and a format, that lists a module; else
    `usual`.

    Raises:
        PatternError: a pattern is not supported.
    """

    def __init__(self, usual: str, targets: Sequence[tuple[str, str]] = ()) -> None:
        self._usual = usual
        self._entries = ListedModules([entry for entry, _ in targets])
        self._names = [name for _, name in targets]

    def of(self, module: str) -> str:
        """The name of a format of `FORMATS`."""
        target = self._entries.first(module)
        return self._usual if target is None else self._names[target]

    def unmatched(self, modules: Collection[str]) -> list[str]:
        """The entries that list none of `modules`."""
        return self._entries.unmatched(modules)

    def section(self, modules: Mapping[str, str]) -> Mapping[str, Any]:
        """The `quantization_config` of a checkpoint whose `modules` have these formats: a group for
        all linear layers, and one for each other format, whose modules it names."""
        usual = FORMATS[self._usual].section
        others: dict[str, list[str]] = {}
        for module, name in modules.items():
            if name != self._usual:
                others.setdefault(name, []).append(module)
        groups = dict(usual[_GROUPS])
        for name, named in others.items():
            own = FORMATS[name].section
            (group,) = own[_GROUPS].values()
            groups[name] = {**group, "format": own["format"], "targets": named}
        return {**usual, _GROUPS: groups}
