"""Prints golden_blocks.inc: blocks of random bits and what the `gguf` package decodes them to.

    python cc/ops/block_format/make_golden_blocks.py > cc/ops/block_format/golden_blocks.inc

Needs the packages gguf and numpy. The seed is fixed, so the output is the same on every run. Scales
are set to chosen f16 values (normal, negative, subnormal); everything else in a block is random.
"""

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

# Format, blocks, bytes of a block, offsets of its f16 scales.
FORMATS = [
    ("Q4_0", Type.Q4_0, 3, 18, (0,)),
    ("Q4_1", Type.Q4_1, 3, 20, (0, 2)),
    ("Q5_0", Type.Q5_0, 3, 22, (0,)),
    ("Q8_0", Type.Q8_0, 3, 34, (0,)),
    ("Q4_K", Type.Q4_K, 1, 144, (0, 2)),
    ("Q5_K", Type.Q5_K, 1, 176, (0, 2)),
    ("Q6_K", Type.Q6_K, 1, 210, (208,)),
    # Formats that are converted (cc/ops/quantized/converted_blocks.h).
    ("Q5_1", Type.Q5_1, 3, 24, (0, 2)),
    ("Q2_K", Type.Q2_K, 1, 84, (80, 82)),
    ("Q3_K", Type.Q3_K, 1, 110, (108,)),
    ("IQ4_NL", Type.IQ4_NL, 3, 18, (0,)),
    ("IQ4_XS", Type.IQ4_XS, 1, 136, (0,)),
    ("MXFP4", Type.MXFP4, 3, 17, ()),
    ("TQ1_0", Type.TQ1_0, 1, 54, (52,)),
    ("TQ2_0", Type.TQ2_0, 1, 66, (64,)),
    ("IQ1_S", Type.IQ1_S, 1, 50, (0,)),
    ("IQ1_M", Type.IQ1_M, 1, 56, ()),
    ("IQ2_XXS", Type.IQ2_XXS, 1, 66, (0,)),
    ("IQ2_XS", Type.IQ2_XS, 1, 74, (0,)),
    ("IQ2_S", Type.IQ2_S, 1, 82, (0,)),
    ("IQ3_XXS", Type.IQ3_XXS, 1, 98, (0,)),
    ("IQ3_S", Type.IQ3_S, 1, 110, (0,)),
]
SCALES = np.array([0.0123, -0.0456, 3e-6], dtype="<f2")
EXPONENTS = (119, 127, 110)  # of scales that are powers of two
MINIMA = np.array([-0.0789, 0.0021, 5e-7], dtype="<f2")


def print_array(kind: str, name: str, values: list[str]) -> None:
    """Prints one C++ array, as many values a line as fit in 100 columns."""
    per_line = 96 // (len(values[0]) + 2)
    print(f"inline constexpr {kind} {name}[] = {{")
    for i in range(0, len(values), per_line):
        print("    " + ", ".join(values[i : i + per_line]) + ",")
    print("};")


def main() -> None:
    rng = np.random.default_rng(20240611)
    print("// Written by make_golden_blocks.py: blocks, and the bits of the floats they stand for.")
    for name, type_, blocks, size, scale_offsets in FORMATS:
        data = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
        for i in range(blocks):
            for offset, values in zip(scale_offsets, (SCALES, MINIMA), strict=False):
                data[i, offset : offset + 2] = np.frombuffer(values[i].tobytes(), np.uint8)
        if type_ is Type.MXFP4:
            data[:, 0] = EXPONENTS
        if type_ is Type.IQ1_M:  # a nibble of the scale in each of four words
            nibbles = int(SCALES[:1].view("<u2")[0]) >> np.array([0, 4, 8, 12]) & 15
            data[:, 49::2] = data[:, 49::2] & 15 | nibbles.astype(np.uint8) << 4
        floats = quants.dequantize(data, type_).astype("<f4").reshape(-1)
        print_array("uint8_t", f"k{name}Blocks", [f"0x{b:02x}" for b in data.reshape(-1)])
        print_array("uint32_t", f"k{name}Floats", [f"0x{w:08x}" for w in floats.view("<u4")])


if __name__ == "__main__":
    main()
