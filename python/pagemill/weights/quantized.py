"""Values of quantized weights in f32: for the torch executor, and as a reference for tests of the
native executor. `cc/tensor/quantized.h` has the layouts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagemill.ops.program import Format, QuantizedEntry
from pagemill.weights.read import e8m0_values

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)  # rows of the integers in a word, from its lowest bits

_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_E2M1 = np.concatenate([_MAGNITUDES, -_MAGNITUDES])  # the float of each code


def dequantize_parts(
    entry: QuantizedEntry,
    values: Ints | Floats,
    scales: Floats,
    zeros: Ints | None,
    groups: Ints | None,
    factor: Floats | None,
) -> Floats:
    """The weight `entry` from the values of its parts; each result is rounded to f32 once."""
    if len(entry.shape) == 2:
        return _matrix(entry, 0, values, scales, zeros, groups, factor)
    step = entry.format.row_step
    matrices: list[Floats] = []
    for i in range(entry.shape[0]):
        own = () if step else (i,)  # with a step, all matrices share the parts
        matrices.append(
            _matrix(
                entry,
                i * step,
                values[own],
                scales[own],
                None if zeros is None else zeros[own],
                None if groups is None else groups[own],
                None if factor is None else factor[own],
            )
        )
    return np.stack(matrices)


def _matrix(
    entry: QuantizedEntry,
    skipped_rows: int,
    values: Ints | Floats,
    scales: Floats,
    zeros: Ints | None,
    groups: Ints | None,
    factor: Floats | None,
) -> Floats:
    form = entry.format
    rows, width = entry.shape[-2:]
    if form.layout == "scaled":
        row_blocks = np.arange(rows) // form.block[0]
        column_blocks = np.arange(width) // form.block[1]
        return values.astype(np.float32) * scales[row_blocks[:, None], column_blocks]
    if form.layout in ("mxfp4", "nvfp4"):
        codes = _unpack(values.astype(np.int32, copy=False), form, 4, axis=1).astype(np.int32)
        of_groups = e8m0_values(scales) if factor is None else scales * factor
        whole = _E2M1[codes] * np.repeat(of_groups, form.block[1], axis=1)
        first_row, first_column = form.at[0] + skipped_rows, form.at[1]
        return whole[first_row : first_row + rows, first_column : first_column + width]
    bits = 4 if entry.dtype == "u4" else 8
    words = values.astype(np.int32, copy=False)
    by_rows = form.layout == "pack_quantized"
    if form.layout == "awq":
        q = _unpack(words, form, bits, axis=1).T
    else:
        q = _unpack(words, form, bits, axis=1 if by_rows else 0)
        q = q if by_rows else q.T
    scale = scales if by_rows else scales.T
    zero = _zeros(form, bits, zeros, scale.shape)
    index = groups
    if index is None:
        index = np.arange(q.shape[1], dtype=np.int32) // np.int32(form.block[1])
    first_row, first_column = form.at[0] + skipped_rows, form.at[1]
    these = slice(first_row, first_row + rows)
    index = index[first_column : first_column + width]
    q = q[these, first_column : first_column + width]
    product = scale[these][:, index] * (q - zero[these][:, index])
    return np.ascontiguousarray(product, np.float32)


def _unpack(words: Ints, form: Format, bits: int, axis: int) -> Floats:
    """The integers of each word, side by side along `axis` of a matrix."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    if form.layout == "awq":
        shifts = shifts[np.argsort(_AWQ_ROWS)]
    integers = (words.view(np.uint32)[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    if axis == 0:
        integers = integers.transpose(0, 2, 1)
        return integers.reshape(-1, words.shape[1]).astype(np.float32)
    return integers.reshape(words.shape[0], -1).astype(np.float32)


def _zeros(form: Format, bits: int, zeros: Ints | None, shape: tuple[int, ...]) -> Floats:
    """[rows, groups]"""
    if zeros is None:
        return np.full(shape, 1 << (bits - 1), np.float32)
    if form.layout == "pack_quantized":
        return _unpack(zeros, form, bits, axis=0)[: shape[0]]
    stored = _unpack(zeros, form, bits, axis=1).T
    # A zero point of 0 is stored as the largest integer.
    return (stored + 1) % (1 << bits) if form.layout == "gptq" else stored
