"""The interface between quantization methods and the binder."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, Self

from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.quantization.section import Section
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.location import TensorLocation


class Scheme(Protocol):
    """How the matrices of some modules are stored; stateless.

    1. `stores` is true if the tensors beside `module` contain a matrix of this scheme. It reads no
       data.
    2. `block_elements` is the number of elements of a row that cannot be divided between ranks.
    3. `operand` declares the matrix [out, in], or a part of it, as one tensor, quantized or not. It
       rejects tensors that do not fit `shape` or the scheme with a WeightsError that names them.
    4. `head_matrices` declares some rows of some heads of a matrix [heads.total * rows.total,
       width] as [heads.size, rows.size, width], or raises.
    """

    @property
    def name(self) -> str:
        """The name in messages, e.g. "awq (4 bits, groups of 128)"."""
        ...

    def stores(self, tensors: DeclaredTensors, module: str) -> bool: ...

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int: ...

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor: ...

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor: ...


class Method(Protocol):
    """One quantization method, as a model's configuration sets it.

    1. `from_section` reads the method's part of the configuration, once, and rejects what is not
       supported with a QuantizationError.
    2. `scheme` returns the scheme that the configuration states for a module.
    3. `may_ignore` accepts tensors that no layer reads: scales of activations, for example.
    """

    @classmethod
    def from_section(cls, section: Section) -> Self: ...

    @property
    def notes(self) -> Collection[str]:
        """Notes on the checkpoint for the operator."""
        ...

    @property
    def parts(self) -> Collection[str]:
        """Last components of the names of tensors that replace a `weight`, e.g. "qweight"."""
        ...

    def scheme(self, module: str) -> Scheme: ...

    def may_ignore(self, tensor: TensorLocation) -> bool: ...
