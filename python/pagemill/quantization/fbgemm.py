"""The `fbgemm_fp8` method of transformers: e4m3 weights with a scale per row."""

from __future__ import annotations

from typing import Self

from pagemill.quantization.base import Scheme
from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.scaled import PARTS, ScaledScheme
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation

_IGNORED = (".input_scale", ".input_scale_ub")
_NOTE = (
    "the checkpoint's upper bound of the scales of activations (activation_scale_ub) is not used:"
    " no activation is cut off"
)


class FbgemmFp8:
    """One scheme for all modules except those listed as not converted."""

    parts = PARTS

    def __init__(self, scheme: ScaledScheme, excluded: ModuleNames, notes: tuple[str, ...]) -> None:
        self._scheme = scheme
        self._excluded = excluded
        self.notes = notes

    @classmethod
    def from_section(cls, section: Section) -> Self:
        scheme = ScaledScheme(section.method, "f8_e4m3", None, quantized_activations=True)
        notes = () if section.get("activation_scale_ub") is None else (_NOTE,)
        return cls(scheme, ModuleNames(section.strings("modules_to_not_convert")), notes)

    def scheme(self, module: str) -> Scheme:
        return UNQUANTIZED if module in self._excluded else self._scheme

    def may_ignore(self, tensor: TensorLocation) -> bool:
        return tensor.name.endswith(_IGNORED)
