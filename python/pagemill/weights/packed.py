"""Matrices of packed integers (AWQ, GPTQ, pack-quantized): where their tensors lie, and what they
become.

    packed = packed_matrix(source, quantization, "model.layers.0.mlp.down_proj", (576, 1536))
    packed.dtype     # "q4_0", "q4_1" or "q8_0", which `linear` computes on; else "bf16"

Zero points and indices of groups are read, so that a matrix becomes the best dtype that holds it,
whatever the configuration says of it: zero points that are all in the middle are none, an index
that counts up is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagemill.ops.program import Packing
from pagemill.ops.trace import format_shape
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.quantization import GroupQuantization
from pagemill.weights.read import REAL_DTYPES, read_bytes
from pagemill.weights.source import ModelSource

BLOCK_COLUMNS = 32  # columns divide at multiples of it

_NAMES = ("qweight", "scales", "qzeros", "g_idx")
_PACK_NAMES = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx")
_ORDER_NOTE = (
    "matrices that are quantized in the order of activations (desc_act, actorder: an index of"
    " groups that does not count up) are expanded to bf16, to four times the memory of 4 bits"
)
_ZEROS_NOTE = "matrices of 8 bits with zero points are expanded to bf16, to twice their memory"


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """`parts`: values, scales, zeros, groups; `note`: what the operator should know, or nothing."""

    dtype: str
    packing: Packing
    parts: tuple[TensorLocation | None, ...]
    note: str


def has_packed(source: ModelSource, module: str) -> bool:
    """Is the weight of `module` stored in packed integers?"""
    return isinstance(source.quantization, GroupQuantization) and source.has(
        f"{module}.{_names(source.quantization)[0]}"
    )


def packed_matrix(
    source: ModelSource, quantization: GroupQuantization, module: str, shape: tuple[int, int]
) -> PackedMatrix:
    """The weight of `module`, [out, in], as `quantization` stores it.

    Raises:
        WeightsError: a tensor is missing or does not fit `shape`.
        OSError: a file cannot be read.
    """
    rows, columns = shape
    packing = Packing(quantization.layout, quantization.bits, quantization.group or columns)
    names = [f"{module}.{name}" for name in _names(quantization)]
    if columns % BLOCK_COLUMNS:
        raise WeightsError(
            f"{source.path}: {names[0]} has rows of {columns}; rows of packed integers are"
            f" supported in multiples of {BLOCK_COLUMNS}"
        )
    values, scales = source.tensor(names[0]), source.tensor(names[1])
    by_rows = packing.layout == "pack_quantized"
    words, groups = 32 // packing.bits, -(-columns // packing.group)
    expected = {
        "awq": (columns, rows // words),
        "pack_quantized": (rows, columns // words),
    }.get(packing.layout, (columns // words, rows))
    _check(source, values, ("i32",), expected)
    _check(source, scales, REAL_DTYPES, (rows, groups) if by_rows else (groups, rows))
    zeros = source.tensor(names[2]) if quantization.zeros or source.has(names[2]) else None
    if zeros is not None:
        zeros_shape = (-(-rows // words), groups) if by_rows else (groups, rows // words)
        _check(source, zeros, ("i32",), zeros_shape)
        zeros = None if _in_the_middle(zeros, packing) else zeros
    index = source.tensor(names[3]) if source.has(names[3]) else None
    if index is not None:
        _check(source, index, ("i32",), (columns,))
        index = None if _is_plain(index, packing) else index
    dtype, note = _becomes(packing, zeros, index)
    return PackedMatrix(dtype, packing, (values, scales, zeros, index), note)


def _names(quantization: GroupQuantization) -> tuple[str, ...]:
    return _PACK_NAMES if quantization.layout == "pack_quantized" else _NAMES


def _becomes(
    packing: Packing, zeros: TensorLocation | None, index: TensorLocation | None
) -> tuple[str, str]:
    """The dtype, and what to say of it."""
    if index is not None:
        return "bf16", _ORDER_NOTE
    if packing.bits == 8:
        return ("q8_0", "") if zeros is None else ("bf16", _ZEROS_NOTE)
    return ("q4_0" if zeros is None else "q4_1"), ""


def _check(
    source: ModelSource, part: TensorLocation, dtypes: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    if part.dtype in dtypes and part.shape == shape:
        return
    raise WeightsError(
        f"{source.path}: {part.name} is {part.dtype} {format_shape(part.shape)}, the configuration"
        f" (bits, group_size) asks for {' or '.join(dtypes)} {format_shape(shape)}"
    )


def _in_the_middle(zeros: TensorLocation, packing: Packing) -> bool:
    """Are all zero points half of the range?"""
    middle = (1 << (packing.bits - 1)) - (packing.layout == "gptq")
    word = sum(middle << place for place in range(0, 32, packing.bits))
    return bool((read_bytes(zeros).view("<u4") == word).all())


def _is_plain(index: TensorLocation, packing: Packing) -> bool:
    """Are groups in the order of columns: does the index count up, or was it never filled?

    Older writers of GPTQ leave zeros there; compressed-tensors leaves -1.
    """
    groups = read_bytes(index).view("<i4")
    counts_up = (groups == np.arange(len(groups)) // packing.group).all()
    empty = -1 if packing.layout == "pack_quantized" else 0
    return bool(counts_up or (groups == empty).all())
