"""AWQ, in AutoAWQ's GEMM layout: 4-bit integers, eight per word, input by input."""

from __future__ import annotations

from typing import Self

from pagemill.quantization.base import Scheme
from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.packed import PARTS, PackedScheme
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation


class Awq:
    """One scheme for all modules except those of `modules_to_not_convert`."""

    notes = ()
    parts = PARTS

    def __init__(self, scheme: PackedScheme, excluded: ModuleNames) -> None:
        self._scheme = scheme
        self._excluded = excluded

    @classmethod
    def from_section(cls, section: Section) -> Self:
        version = section.get("version", "gemm")
        if (version.lower() if isinstance(version, str) else version) != "gemm":
            raise section.refuse("version", version, "gemm")
        bits = section.bits("bits", section.get("bits", section.get("w_bit")), (4,))
        size = section.get("group_size", section.get("q_group_size"))
        group = section.group("group_size", size)
        excluded = ModuleNames(section.strings("modules_to_not_convert"))
        return cls(PackedScheme("awq", "awq", bits, group), excluded)

    def scheme(self, module: str) -> Scheme:
        return UNQUANTIZED if module in self._excluded else self._scheme

    def may_ignore(self, tensor: TensorLocation) -> bool:
        del tensor
        return False
