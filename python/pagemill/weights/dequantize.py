"""Values of the GGUF block formats, in f32: the torch executor's weights and the tests' reference.

Each function takes the blocks of a tensor as `[blocks, block_bytes]` uint8 and returns
`[blocks, block_elements]` float32. Layouts: ggml's `ggml-common.h`; all numbers little endian.
Formats with tables of points are read by the native extension, which has the tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import BLOCK_DTYPES, DTYPES

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Values of the codes of iq4_nl and iq4_xs, twice those of mxfp4 (e2m1), powers of tq1_0's digits.
_NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
_E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)
_LOW, _FOUR = np.uint8(15), np.uint8(4)  # typed, so that results stay uint8


def dequantize(dtype: str, data: Bytes) -> Floats:
    """`data` is uint8 [...], a whole number of blocks of `dtype`; returns its values, flat.

    Raises:
        ValueError: `dtype` is not a block format.
    """
    if dtype not in BLOCK_DTYPES:
        raise ValueError(f"{dtype} is not a block format; known: {', '.join(sorted(BLOCK_DTYPES))}")
    if dtype not in _FORMATS:
        return _of_points(dtype, data)
    return _FORMATS[dtype](data.reshape(-1, DTYPES[dtype].block_bytes)).reshape(-1)


def _of_points(dtype: str, data: Bytes) -> Floats:
    from pagemill import _native

    info = DTYPES[dtype]
    values = np.empty(data.size // info.block_bytes * info.block_elements, np.float32)
    _native.dequantize_blocks(dtype, np.ascontiguousarray(data).reshape(-1), values)
    return values


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


def _q5_1(blocks: Bytes) -> Floats:
    fifth = np.unpackbits(blocks[:, 4:8], axis=1, bitorder="little")
    quants = _nibbles(blocks[:, 8:24]) | (fifth << _FOUR)
    return quants.astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _bit_pairs(packed: Bytes) -> Bytes:
    """[blocks, 64] -> [blocks, 256]: of each 32 bytes first the lowest pairs of bits."""
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]
    return ((packed.reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3)).reshape(-1, 256)


def _scaled(scales: Floats, quants: npt.NDArray[np.generic]) -> Floats:
    """Each of `scales` [blocks, n] times its share of a row of `quants` [blocks, elements]."""
    parts = quants.astype(np.float32).reshape(*scales.shape, -1)
    return (scales[:, :, None] * parts).reshape(len(quants), -1)


def _q2_k(blocks: Bytes) -> Floats:
    scales = _half(blocks, 80) * (blocks[:, 0:16] & _LOW).astype(np.float32)
    minima = _half(blocks, 82) * (blocks[:, 0:16] >> _FOUR).astype(np.float32)
    products = _scaled(scales, _bit_pairs(blocks[:, 16:80]))
    values: Floats = np.subtract(products, np.repeat(minima, 16, axis=1), dtype=np.float32)
    return values


def _q3_k(blocks: Bytes) -> Floats:
    # A third bit of 0 subtracts 4; bit j of byte i belongs to element 32 j + i.
    third = (blocks[:, None, 0:32] >> np.arange(8, dtype=np.uint8)[None, :, None]) & np.uint8(1)
    quants = _bit_pairs(blocks[:, 32:96]).astype(np.int8) + 4 * third.reshape(-1, 256).view(np.int8)
    high = blocks[:, None, 104:108] >> np.array([0, 2, 4, 6], dtype=np.uint8)[None, :, None]
    scales = _nibbles(blocks[:, 96:104]) | ((high.reshape(-1, 16) & np.uint8(3)) << _FOUR)
    return _scaled(_half(blocks, 108) * (scales.astype(np.float32) - 32), quants - 4)


def _codes(packed: Bytes, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """[blocks, 16 n] -> [blocks, 32 n]: of each 16 bytes the values of the low nibbles first."""
    return values[_nibbles(packed.reshape(-1, 16))].reshape(len(packed), -1)


def _iq4_nl(blocks: Bytes) -> Floats:
    return _scaled(_half(blocks, 0), _codes(blocks[:, 2:18], _NONLINEAR))


def _iq4_xs(blocks: Bytes) -> Floats:
    pairs = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
    low = np.stack([blocks[:, 4:8] & _LOW, blocks[:, 4:8] >> _FOUR], axis=2).reshape(-1, 8)
    scales = low | ((pairs & 3).astype(np.uint8) << _FOUR)
    quants = _codes(blocks[:, 8:136], _NONLINEAR)
    return _scaled(_half(blocks, 0) * (scales.astype(np.float32) - 32), quants)


def _mxfp4(blocks: Bytes) -> Floats:
    # Codes have twice their value, so scales have half of theirs, 2^(s - 127).
    scales = np.ldexp(np.float32(1), blocks[:, 0:1].astype(np.int32) - 128).astype(np.float32)
    return _scaled(scales, _codes(blocks[:, 1:17], _E2M1_DOUBLED))


def _ternary(packed: Bytes, digits: int) -> npt.NDArray[np.int8]:
    """[blocks, n] -> [blocks, digits n]: the first digits of all bytes first. A byte b stands for
    b / 256 in base 3."""
    shifted = packed[:, None, :] * _POWERS[None, :digits, None]
    return ((shifted.astype(np.uint16) * 3) >> 8).astype(np.int8).reshape(len(packed), -1) - 1


def _tq1_0(blocks: Bytes) -> Floats:
    parts = [_ternary(blocks[:, 0:32], 5), _ternary(blocks[:, 32:48], 5)]
    quants = np.concatenate([*parts, _ternary(blocks[:, 48:52], 4)], axis=1)
    return _scaled(_half(blocks, 52), quants)


def _tq2_0(blocks: Bytes) -> Floats:
    return _scaled(_half(blocks, 64), _bit_pairs(blocks[:, 0:64]).astype(np.int8) - np.int8(1))


_FORMATS: dict[str, Callable[[Bytes], Floats]] = {
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
    "mxfp4": _mxfp4,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q4_k": _q4_k,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "q8_0": _q8_0,
    "tq1_0": _tq1_0,
    "tq2_0": _tq2_0,
}
