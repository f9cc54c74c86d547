"""The formats that `--quantization` rounds a checkpoint's matrices to, by name.

To add one, write a `Rounding` and add it to `FORMATS`.
"""

from __future__ import annotations

from pagemill.quantization.at_load.packed_rounding import Int4Rounding, Int8Rounding
from pagemill.quantization.at_load.rounding import Rounding
from pagemill.quantization.at_load.scaled_rounding import ScaledRounding

FORMATS: dict[str, Rounding] = {
    "fp8": ScaledRounding("f8_e4m3"),
    "fp8_per_block": ScaledRounding("f8_e4m3", block=128),
    "int8": Int8Rounding(),
    "int8_w8a8": ScaledRounding("i8"),
    "int4": Int4Rounding(),
}
# Names that stand for one of these formats, of matrices of experts alone.
OF_EXPERTS = {"experts_int8": "int8"}
