"""bitsandbytes: int8 matrices with the largest magnitude of each row beside them (`SCB`). Its
matrices of 4 bits are converted before a program is built (`at_load`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.quantization.base import Scheme
from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.notes import UNCONVERTED
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import is_zero

_MAXIMA = "SCB"
_ORDER = "weight_format"  # 0: row by row; others are orders of tensor cores
_LARGEST = 127  # the integer of a row's largest magnitude


@dataclass(frozen=True, slots=True)
class Int8RowsScheme:
    """`<module>.weight`, i8 [out, in], times `<module>.SCB`, f32 [out], over 127."""

    scaled: ScaledScheme

    @property
    def name(self) -> str:
        return self.scaled.name

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        return self.scaled.stores(tensors, module)

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        return self.scaled.block_elements(tensors, module)

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        _check_order(tensors, module)
        return self.scaled.operand(tensors, module, shape, rows, columns)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor:
        _check_order(tensors, module)
        return self.scaled.head_matrices(tensors, module, width, heads, rows)


class BitsAndBytes:
    """One scheme for all modules except those of `llm_int8_skip_modules`. Activations are not
    rounded: the library keeps columns with outliers in floating point, which no kernel does."""

    notes = ()
    parts = (_MAXIMA, _ORDER)

    def __init__(self, scheme: Scheme, excluded: ModuleNames) -> None:
        self._scheme = scheme
        self._excluded = excluded

    @classmethod
    def from_section(cls, section: Section) -> Self:
        known = {True: f"true (4 bits {UNCONVERTED})"}
        section.require("load_in_8bit", section.get("load_in_8bit", False), known)
        rows = ScaledScheme(section.method, "i8", None, suffixes=(_MAXIMA,), unit=1 / _LARGEST)
        return cls(Int8RowsScheme(rows), ModuleNames(section.strings("llm_int8_skip_modules")))

    def scheme(self, module: str) -> Scheme:
        return UNQUANTIZED if module in self._excluded else self._scheme

    def may_ignore(self, tensor: TensorLocation) -> bool:
        return tensor.name.endswith(f".{_ORDER}") and is_zero(tensor)


def _check_order(tensors: DeclaredTensors, module: str) -> None:
    location = tensors.peek(f"{module}.{_ORDER}")
    if location is not None and not is_zero(location):
        raise WeightsError(
            f"{tensors.path}: {location.name} says that the matrix is not stored row by row, which"
            " older versions of bitsandbytes did; save the model again with a newer one"
        )
