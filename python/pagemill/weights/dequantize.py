"""Values of the GGUF block formats, in f32: the torch executor's weights and the tests' reference.

Each function takes the blocks of a tensor as `[blocks, block_bytes]` uint8 and returns
`[blocks, block_elements]` float32. Layouts: ggml's `ggml-common.h`; all numbers little endian.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pagemill.ops.dtypes import DTYPES

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_LOW, _FOUR = np.uint8(15), np.uint8(4)  # typed, so that results stay uint8


def dequantize(dtype: str, data: Bytes) -> Floats:
    """`data` is uint8 [...], a whole number of blocks of `dtype`; returns its values, flat.

    Raises:
        ValueError: `dtype` is not a block format.
    """
    if dtype not in _FORMATS:
        raise ValueError(f"{dtype} is not a block format; known: {', '.join(sorted(_FORMATS))}")
    return _FORMATS[dtype](data.reshape(-1, DTYPES[dtype].block_bytes)).reshape(-1)


def _half(blocks: Bytes, at: int) -> Floats:
    """The f16 at byte `at` of each block, [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[blocks, n] -> [blocks, 2 n]: the low nibbles of all bytes, then the high ones."""
    return np.concatenate([packed & _LOW, packed >> _FOUR], axis=1)


def _q4_0(blocks: Bytes) -> Floats:
    return (_nibbles(blocks[:, 2:18]).astype(np.float32) - 8) * _half(blocks, 0)


def _q4_1(blocks: Bytes) -> Floats:
    return _nibbles(blocks[:, 4:20]).astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    quants = _nibbles(blocks[:, 6:22]) | (fifth << _FOUR)
    return (quants.astype(np.float32) - 16) * _half(blocks, 0)


def _q8_0(blocks: Bytes) -> Floats:
    return blocks[:, 2:34].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _scales_k4(packed: Bytes) -> tuple[Floats, Floats]:
    """The 8 six-bit scales and minima of a q4_k or q5_k block from their 12 bytes."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _super_block(blocks: Bytes, quants: Bytes) -> Floats:
    """Applies the scales of q4_k and q5_k to `quants` [blocks, 8, 32]."""
    scales, minima = _scales_k4(blocks[:, 4:16])
    scale = (_half(blocks, 0) * scales)[:, :, None]
    minimum = (_half(blocks, 2) * minima)[:, :, None]
    values: Floats = np.subtract(scale * quants.astype(np.float32), minimum, dtype=np.float32)
    return values.reshape(-1, 256)


def _paired_nibbles(packed: Bytes) -> Bytes:
    """[blocks, 128] -> [blocks, 8, 32]: of each 32 bytes first the low, then the high nibbles."""
    groups = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([groups & _LOW, groups >> _FOUR], axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: Bytes) -> Floats:
    return _super_block(blocks, _paired_nibbles(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Floats:
    # Bit j of byte i of the high bits belongs to element i of sub-block j.
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]
    high = (high & np.uint8(1)) << _FOUR
    return _super_block(blocks, _paired_nibbles(blocks[:, 48:176]) | high)


def _q6_k(blocks: Bytes) -> Floats:
    # Two halves of 128 elements: 64 bytes of low nibbles, 32 bytes of high bit pairs each.
    low = blocks[:, 0:128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & _LOW, low >> _FOUR], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    quants = (low | (high << 4)).astype(np.float32) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _half(blocks, 208)
    values: Floats = np.multiply(quants.reshape(-1, 16, 16), scales[:, :, None], dtype=np.float32)
    return values.reshape(-1, 256)


_FORMATS: dict[str, Callable[[Bytes], Floats]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q4_k": _q4_k,
    "q5_0": _q5_0,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "q8_0": _q8_0,
}
