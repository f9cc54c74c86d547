"""Element types of program text, the GGUF block formats included (`cc/tensor/dtype.h`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """A block of `block_elements` consecutive elements of a row takes `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int


DTYPES: dict[str, DTypeInfo] = {
    info.name: info
    for info in (
        DTypeInfo("f32", 1, 4),
        DTypeInfo("bf16", 1, 2),
        DTypeInfo("f16", 1, 2),
        DTypeInfo("i32", 1, 4),
        DTypeInfo("i8", 1, 1),
        DTypeInfo("u8", 1, 1),
        DTypeInfo("f8_e4m3", 1, 1),
        DTypeInfo("u4", 8, 4),
        DTypeInfo("q4_0", 32, 18),
        DTypeInfo("q4_1", 32, 20),
        DTypeInfo("q5_0", 32, 22),
        DTypeInfo("q8_0", 32, 34),
        DTypeInfo("q4_k", 256, 144),
        DTypeInfo("q5_k", 256, 176),
        DTypeInfo("q6_k", 256, 210),
        DTypeInfo("q5_1", 32, 24),
        DTypeInfo("q2_k", 256, 84),
        DTypeInfo("q3_k", 256, 110),
        DTypeInfo("iq4_nl", 32, 18),
        DTypeInfo("iq4_xs", 256, 136),
        DTypeInfo("mxfp4", 32, 17),
        DTypeInfo("tq1_0", 256, 54),
        DTypeInfo("tq2_0", 256, 66),
        DTypeInfo("iq1_s", 256, 50),
        DTypeInfo("iq1_m", 256, 56),
        DTypeInfo("iq2_xxs", 256, 66),
        DTypeInfo("iq2_xs", 256, 74),
        DTypeInfo("iq2_s", 256, 82),
        DTypeInfo("iq3_xxs", 256, 98),
        DTypeInfo("iq3_s", 256, 110),
    )
}

FLOAT_DTYPES = frozenset({"f32", "bf16", "f16"})

# The GGUF block formats.
BLOCK_DTYPES = frozenset(info.name for info in DTYPES.values() if info.block_elements >= 32)
# Those that CPUs convert to others when a program is bound: what most of their kernels get
# (`SliceDType` of `cc/ops/quantized/converted_blocks.h`).
CONVERTED_DTYPES = {
    "iq1_m": "q6_k",
    "iq1_s": "q4_0",
    "iq2_s": "q6_k",
    "iq2_xs": "q6_k",
    "iq2_xxs": "q4_0",
    "iq3_s": "q4_k",
    "iq3_xxs": "q4_k",
    "iq4_xs": "iq4_nl",
    "q2_k": "q6_k",
    "q5_1": "q8_0",
    "tq1_0": "q4_0",
    "tq2_0": "q4_0",
}
# Dtypes of a matrix that is stored in one tensor.
MATRIX_DTYPES = FLOAT_DTYPES | BLOCK_DTYPES
# Dtypes of values that need separate scales.
SCALED_DTYPES = ("f8_e4m3", "i8")


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense row-major tensor.

    Raises:
        ValueError: `dtype` is unknown, or a row is not a whole number of blocks.
    """
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    info = DTYPES[dtype]
    row = shape[-1] if shape else 1
    if row % info.block_elements:
        raise ValueError(
            f"a row of {row} elements is not a whole number of {dtype} blocks of"
            f" {info.block_elements}"
        )
    return math.prod(shape) // info.block_elements * info.block_bytes
