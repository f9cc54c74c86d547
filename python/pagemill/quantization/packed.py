"""Locates matrices of packed integers (AWQ, GPTQ, pack-quantized).

    scheme = PackedScheme("awq", "awq", bits=4, group=128)
    packed = scheme.matrix(tensors, "model.layers.0.mlp.down_proj", (576, 1536))
    packed.parts     # values, scales, zeros, groups: locations, None if there are none

Zero points and group indices are read, so that the program describes their content regardless of
the configuration: zero points that are all in the middle are omitted, and so is an index that
counts up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagemill.ops.program import Format
from pagemill.ops.shard import Part
from pagemill.ops.trace import Parts, Tensor, format_shape
from pagemill.quantization.notes import UNCONVERTED
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, read_bytes

_BITS_OF_KERNELS = (4, 8)
BLOCK_COLUMNS = 32  # columns divide at multiples of it

_INTEGERS = ("i32",)
PARTS = ("qweight", "scales", "qzeros", "g_idx")
PACK_PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx")
_PARTS_OF_LAYOUTS = {"pack_quantized": PACK_PARTS}  # PARTS of others
_ORDER_NOTE = (
    "matrices that are quantized in the order of activations (desc_act, actorder: an index of"
    " groups that does not count up) are expanded to bf16 by CPUs, to four times the memory of 4"
    " bits"
)
_ZEROS_NOTE = (
    "matrices of 8 bits with zero points are expanded to bf16 by CPUs, to twice their memory"
)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """`group`: columns that share a scale; `parts`: values, scales, zeros, groups; `note`: a note
    for the operator, or nothing."""

    group: int
    parts: tuple[TensorLocation | None, ...]
    note: str


@dataclass(frozen=True, slots=True)
class PackedScheme:
    """Integers of `bits` bits packed in words, with a scale and perhaps a zero point for each row
    and group of columns. `layout` is that of program text (`cc/tensor/quantized.h`); `group` None:
    whole rows; `zeros`: every matrix has a tensor of zero points; `names`: those of the tensors of
    values, scales, zero points and indices, if not those that the layout usually has; `signed`:
    integers and zero points are in two's complement."""

    method: str
    layout: str
    bits: int
    group: int | None
    zeros: bool = True
    names: tuple[str, str, str, str] | None = None
    signed: bool = False

    @property
    def name(self) -> str:
        groups = "rows" if self.group is None else f"groups of {self.group}"
        return f"{self.method} ({self.bits} bits, {groups})"

    @property
    def has_kernels(self) -> bool:
        """Whether a program can have matrices as they are stored."""
        return self.bits in _BITS_OF_KERNELS and not self.signed

    @property
    def part_names(self) -> tuple[str, ...]:
        """Of the tensors of values, scales, zero points and indices."""
        return self.names or _PARTS_OF_LAYOUTS.get(self.layout, PARTS)

    def stores(self, tensors: DeclaredTensors, module: str) -> bool:
        location = tensors.peek(f"{module}.{self.part_names[0]}")
        if location is None:
            return False
        return not location.name.endswith(".weight") or location.dtype in _INTEGERS

    def block_elements(self, tensors: DeclaredTensors, module: str) -> int:
        del tensors, module
        return BLOCK_COLUMNS

    def operand(
        self,
        tensors: DeclaredTensors,
        module: str,
        shape: tuple[int, int],
        rows: Part | None,
        columns: Part | None,
    ) -> Tensor:
        name = f"{module}.weight" if self.names is None else f"{module}.weight.packed"
        rows = rows or Part(0, shape[0], shape[0])
        columns = columns or Part(0, shape[1], shape[1])
        key = name
        for what, part in (("rows", rows), ("columns", columns)):
            key += "" if part.whole else f".{what}{part.begin}-{part.end}"

        def declare() -> tuple[str, tuple[int, ...], Format, Parts]:
            group, parts = self._parts_of(tensors, module, shape)
            if columns.begin % BLOCK_COLUMNS or columns.size % BLOCK_COLUMNS:
                raise WeightsError(
                    f"{tensors.path}: columns {columns.begin} to {columns.end} of {name}"
                    f" would cut a block of {BLOCK_COLUMNS} packed integers"
                )
            form = Format(self.layout, (1, group), (rows.begin, columns.begin))
            return self._dtype, (rows.size, columns.size), form, parts

        return tensors.quantized(key, declare)

    def head_matrices(
        self, tensors: DeclaredTensors, module: str, width: int, heads: Part, rows: Part
    ) -> Tensor:
        key = f"{module}.heads{heads.begin}-{heads.end}.rows{rows.begin}-{rows.end}"

        def declare() -> tuple[str, tuple[int, ...], Format, Parts]:
            group, parts = self._parts_of(tensors, module, (heads.total * rows.total, width))
            at = (heads.begin * rows.total + rows.begin, 0)
            form = Format(self.layout, (1, group), at, row_step=rows.total)
            return self._dtype, (heads.size, rows.size, width), form, parts

        return tensors.quantized(key, declare)

    @property
    def _dtype(self) -> str:
        return "u4" if self.bits == 4 else "u8"

    def _parts_of(
        self, tensors: DeclaredTensors, module: str, shape: tuple[int, int]
    ) -> tuple[int, Parts]:
        """The columns of a group, and the parts as they are declared."""
        packed = self.matrix(tensors, module, shape)
        if packed.note:
            tensors.note(packed.note)
        return packed.group, Parts(*map(tensors.part, packed.parts))

    def matrix(self, tensors: DeclaredTensors, module: str, shape: tuple[int, int]) -> PackedMatrix:
        """The weight of `module`, [out, in].

        Raises:
            WeightsError: a tensor is missing or does not fit `shape`.
            OSError: a file cannot be read.
        """
        if not self.has_kernels:
            raise WeightsError(f"{tensors.path}: {module}: {self.name} is supported {UNCONVERTED}")
        rows, columns = shape
        group = self.group or columns
        names = [f"{module}.{name}" for name in self.part_names]
        if columns % BLOCK_COLUMNS:
            raise WeightsError(
                f"{tensors.path}: {names[0]} has rows of {columns}; rows of packed integers are"
                f" supported in multiples of {BLOCK_COLUMNS}"
            )
        groups = -(-columns // group)
        values = self._locate(tensors, names[0], _INTEGERS, self._words(rows, columns))
        by_rows = self.layout == "pack_quantized"
        scales_shape = (rows, groups) if by_rows else (groups, rows)
        scales = self._locate(tensors, names[1], REAL_DTYPES, scales_shape)
        zeros = index = None
        if self.zeros or tensors.has(names[2]):
            words = 32 // self.bits
            zeros_shape = (-(-rows // words), groups) if by_rows else (groups, rows // words)
            zeros = self._locate(tensors, names[2], _INTEGERS, zeros_shape)
            zeros = None if self._in_the_middle(zeros) else zeros
        if tensors.has(names[3]):
            index = self._locate(tensors, names[3], _INTEGERS, (columns,))
            index = None if self._is_plain(index, group) else index
        note = _ORDER_NOTE if index is not None else ""
        if self.bits == 8 and zeros is not None and index is None:
            note = _ZEROS_NOTE
        return PackedMatrix(group, (values, scales, zeros, index), note)

    def _words(self, rows: int, columns: int) -> tuple[int, int]:
        """The shape of the words that hold a matrix."""
        words = 32 // self.bits
        if self.layout == "awq":
            return columns, rows // words
        return (
            (rows, columns // words)
            if self.layout == "pack_quantized"
            else (columns // words, rows)
        )

    def _locate(
        self,
        tensors: DeclaredTensors,
        name: str,
        dtypes: tuple[str, ...],
        shape: tuple[int, ...],
    ) -> TensorLocation:
        location = tensors.locate(name)
        if location.dtype in dtypes and location.shape == shape:
            return location
        raise WeightsError(
            f"{tensors.path}: {name} is {location.dtype} {format_shape(location.shape)}, its scheme"
            f" {self.name} asks for {' or '.join(dtypes)} {format_shape(shape)}"
        )

    def _in_the_middle(self, zeros: TensorLocation) -> bool:
        """True if all zero points are half of the range."""
        middle = (1 << (self.bits - 1)) - (self.layout == "gptq")
        word = sum(middle << place for place in range(0, 32, self.bits))
        return bool((read_bytes(zeros).view("<u4") == word).all())

    def _is_plain(self, index: TensorLocation, group: int) -> bool:
        """True if groups are in column order: the index counts up, or was never filled.

        Older writers of GPTQ leave zeros there; compressed-tensors leaves -1.
        """
        groups = read_bytes(index).view("<i4")
        counts_up = (groups == np.arange(len(groups)) // group).all()
        empty = -1 if self.layout == "pack_quantized" else 0
        return bool(counts_up or (groups == empty).all())
