"""Matrices as they are stored: floating point, or one of GGUF's block formats, which contain their
scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor, format_shape
from pagemill.quantization.section import Section
from pagemill.tensor.dtypes import DTYPES, MATRIX_DTYPES
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation


class UnquantizedScheme:
    """`<module>.weight`, as it is stored."""

    name = "unquantized"

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        location = tensors.peek(f"{module}.weight")
        return location is not None and location.dtype in MATRIX_DTYPES

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        return DTYPES[tensors.locate(f"{module}.weight").dtype].block_elements

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        return tensors.matrix(_locate(tensors, module, shape), rows, columns)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor:
        """Uses them in place: no byte is copied."""
        location = _locate(tensors, module, (heads.total * rows.total, width))
        return tensors.head_matrices(location, heads, rows)


def _locate(tensors: DeclaredTensors, module: str, shape: tuple[int, int]) -> TensorLocation:
    location = tensors.locate(f"{module}.weight")
    if not location.fits(shape) or location.dtype not in MATRIX_DTYPES:
        raise WeightsError(
            f"{tensors.path}: {location.name} is {location.dtype}"
            f" {format_shape(location.shape)}, the configuration asks for {format_shape(shape)}"
        )
    return location if location.shape == shape else replace(location, shape=shape)


UNQUANTIZED = UnquantizedScheme()


class Unquantized:
    """The method of a GGUF file, and of a checkpoint without quantization_config."""

    notes = ()
    parts = ()

    @classmethod
    def from_section(cls, section: Section) -> Self:
        del section
        return cls()

    def scheme(self, module: str) -> UnquantizedScheme:
        del module
        return UNQUANTIZED

    def may_ignore(self, tensor: TensorLocation) -> bool:
        del tensor
        return False
