"""MXFP4: floats of 4 bits, 32 of which share a scale that is a power of two. Experts in the layout
of gpt-oss, stacks whose other matrices are stored as they are (single matrices: fp4.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from pagemill.ops.program import Format
from pagemill.ops.shard import Part, Stripe
from pagemill.ops.trace import Parts, Tensor
from pagemill.quantization.fp4 import MXFP4_GROUP, check_columns, locate
from pagemill.quantization.section import Section
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation

_BLOCK_BYTES = 16  # of their values


class Mxfp4Scheme:
    """`<name>_blocks`, u8 [experts, rows, columns / 32, 16], and `<name>_scales`, u8 [experts,
    rows, columns / 32]."""

    name = "mxfp4"

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        return tensors.has(f"{module}_blocks")

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        del tensors, module
        return MXFP4_GROUP

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        del shape, rows, columns
        raise _not_experts(tensors, module)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor:
        del width, heads, rows
        raise _not_experts(tensors, module)

    def stack(
        self,
        tensors: DeclaredTensors,
        name: str,
        shape: tuple[int, int, int],
        stripe: Stripe,
        matrices: Part | None,
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        """The experts [experts, out, in], or some of these `matrices`, or rows or columns of each,
        whose rows lie in turn with those of others, as `stripe` says.

        Raises:
            WeightsError: a tensor is missing or of another shape, or the columns would cut a group.
        """
        experts, out, width = shape
        matrices = matrices or Part(0, experts, experts)
        rows, columns = rows or Part(0, out, out), columns or Part(0, width, width)
        check_columns(tensors, name, columns)
        groups = width // MXFP4_GROUP
        stored = (experts, stripe.count * out, groups)
        blocks = locate(tensors, f"{name}_blocks", (*stored, _BLOCK_BYTES))
        scales = locate(tensors, f"{name}_scales", stored)

        def part(location: TensorLocation, group_bytes: int, per_group: int) -> Tensor:
            """A group takes `group_bytes`, and is declared as `per_group` elements."""
            line = groups * group_bytes
            first = (rows.begin * stripe.count + stripe.index) * line
            first += columns.begin // MXFP4_GROUP * group_bytes
            places = [first + i * stripe.count * out * line for i in matrices.indices]
            size = (rows.size, columns.size // MXFP4_GROUP * per_group)
            return tensors.strided_stack(location, size, places, (stripe.count * line, 0))

        def declare() -> tuple[str, tuple[int, ...], Format, Parts]:
            values = part(replace(blocks, dtype="i32"), _BLOCK_BYTES, _BLOCK_BYTES // 4)
            parts = Parts(values, part(scales, 1, 1))
            size = (matrices.size, rows.size, columns.size)
            return "u4", size, Format("mxfp4", (1, MXFP4_GROUP)), parts

        key = f"{name}.{stripe.index}.matrices{matrices.begin}-{matrices.end}"
        key += f".rows{rows.begin}-{rows.end}.columns{columns.begin}-{columns.end}"
        return tensors.quantized(key, declare)


class Mxfp4:
    """The method of gpt-oss: what is stored in blocks is MXFP4."""

    notes = ()
    parts = ()

    @classmethod
    def from_section(cls, section: Section) -> Self:
        section.strings("modules_to_not_convert")  # those that are not stored in blocks
        return cls()

    def scheme(self, module: str) -> Mxfp4Scheme:
        del module
        return Mxfp4Scheme()

    def may_ignore(self, tensor: TensorLocation) -> bool:
        del tensor
        return False


def _not_experts(tensors: DeclaredTensors, module: str) -> WeightsError:
    return WeightsError(f"{tensors.path}: {module} is stored as mxfp4, which only experts may be")
