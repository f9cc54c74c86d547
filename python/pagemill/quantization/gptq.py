"""GPTQ, in AutoGPTQ's and GPTQModel's layout, with zero points stored minus one (gptq) or unchanged
(gptq_v2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pagemill.quantization.base import Scheme
from pagemill.quantization.packed import PARTS, PackedScheme
from pagemill.quantization.patterns import Patterns
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import is_zero

_BITS = (2, 3, 4, 8)
# Fields that an override may set for a module. All but the first two describe how the integers were
# computed; the tensors describe their format.
_OVERRIDES = (
    *("bits", "group_size"),
    *("act_group_aware", "damp_auto_increment", "damp_percent", "desc_act", "mse"),
    *("static_groups", "sym", "true_sequential"),
)


class Gptq:
    """The scheme of the first pattern of `dynamic` that matches a module's name, else the one that
    the configuration states for all."""

    notes = ()
    parts = PARTS

    def __init__(self, scheme: Scheme, patterns: Patterns, overrides: Sequence[Scheme]) -> None:
        self._scheme = scheme
        self._patterns = patterns
        self._overrides = overrides

    @classmethod
    def from_section(cls, section: Section) -> Self:
        stored = section.get("checkpoint_format", "gptq")
        if section.get("is_marlin_format"):
            stored = "marlin"
        section.require("checkpoint_format", stored, {"gptq": "gptq", "gptq_v2": "gptq_v2"})
        dynamic = section.section("dynamic")
        rules = [rule.removeprefix("+:").removeprefix("-:") for rule in dynamic.entries]
        return cls(
            _scheme(section, section, str(stored)),
            Patterns(rules),
            [
                UNQUANTIZED
                if rule.startswith("-:")
                else _scheme(section, dynamic.section(rule), str(stored))
                for rule in dynamic.entries
            ],
        )

    def scheme(self, module: str) -> Scheme:
        rule = self._patterns.first(module)
        return self._scheme if rule is None else self._overrides[rule]

    def may_ignore(self, tensor: TensorLocation) -> bool:
        # Some writers store a bias with each matrix, of zeros if the layer has none.
        return tensor.name.endswith(".bias") and is_zero(tensor)


def _scheme(section: Section, overrides: Section, layout: str) -> PackedScheme:
    """The scheme of `section` with some of its fields replaced."""
    if overrides is not section:
        for name in overrides.entries.keys() - set(_OVERRIDES):
            raise overrides.refuse(name, overrides.get(name), ", ".join(_OVERRIDES))
    bits = overrides.bits("bits", overrides.get("bits", section.get("bits")), _BITS)
    size = overrides.get("group_size", section.get("group_size"))
    return PackedScheme("gptq", layout, bits, overrides.group("group_size", size))
