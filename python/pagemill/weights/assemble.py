"""Values of weights that are assembled of a checkpoint's tensors, in f32: for the torch executor,
and what tests compare the native executor with. `cc/program/assembly.h` has the layouts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagemill.ops.program import AssembledEntry, Packing

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)  # of the integers of a word, from its lowest bits


def assemble(
    entry: AssembledEntry, values: Ints, scales: Floats, zeros: Ints | None, groups: Ints | None
) -> Floats:
    """The weight `entry` of these parts, with the rounding of its dtype."""
    packing = entry.packing
    by_rows = packing.layout == "pack_quantized"
    if packing.layout == "awq":
        q = _unpack(values, packing, axis=1).T
    else:
        q = _unpack(values, packing, axis=1) if by_rows else _unpack(values, packing, axis=0).T
    scale = scales if by_rows else scales.T
    zero = _zeros(packing, zeros, scale.shape)
    columns = np.arange(q.shape[1])
    index = columns // packing.group if groups is None else groups
    if entry.dtype != "bf16":
        scale = scale.astype(np.float16).astype(np.float32)
    if entry.dtype == "q4_1":
        minimum = (-scale * zero).astype(np.float16).astype(np.float32)
        whole = scale[:, index] * q + minimum[:, index]
    else:
        whole = scale[:, index] * (q - zero[:, index])
    rows, width = entry.shape
    first_row, first_column = entry.first_row, entry.first_column
    part = whole[first_row : first_row + rows, first_column : first_column + width]
    return _to_bf16(part) if entry.dtype == "bf16" else np.ascontiguousarray(part)


def _unpack(words: Ints, packing: Packing, axis: int) -> Floats:
    """The integers of each word, side by side along `axis` of a matrix."""
    bits = packing.bits
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    if packing.layout == "awq":
        shifts = shifts[np.argsort(_AWQ_ROWS)]
    integers = (words.view(np.uint32)[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    if axis == 0:
        integers = integers.transpose(0, 2, 1)
        return integers.reshape(-1, words.shape[1]).astype(np.float32)
    return integers.reshape(words.shape[0], -1).astype(np.float32)


def _zeros(packing: Packing, zeros: Ints | None, shape: tuple[int, ...]) -> Floats:
    """[rows, groups]"""
    if zeros is None:
        return np.full(shape, 1 << (packing.bits - 1), np.float32)
    if packing.layout == "pack_quantized":
        return _unpack(zeros, packing, axis=0)[: shape[0]]
    stored = _unpack(zeros, packing, axis=1).T
    # A zero point of 0 is stored as the largest integer.
    return (stored + 1) % (1 << packing.bits) if packing.layout == "gptq" else stored


def _to_bf16(values: Floats) -> Floats:
    """Rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)
