"""Prints point_tables.inc: the points of the GGUF formats IQ1_*, IQ2_* and IQ3_*.

    python cc/ops/quantized/internal/make_point_tables.py \
        > cc/ops/quantized/internal/point_tables.inc

Needs the package gguf, whose tables they are; its licence is printed with them.
"""

from importlib.metadata import files

from gguf import quants

# Name, class and bits of a coordinate.
TABLES = [
    ("kIq1Points", quants.IQ1_S, 2),
    ("kIq2XxsPoints", quants.IQ2_XXS, 2),
    ("kIq2XsPoints", quants.IQ2_XS, 2),
    ("kIq2SPoints", quants.IQ2_S, 2),
    ("kIq3XxsPoints", quants.IQ3_XXS, 4),
    ("kIq3SPoints", quants.IQ3_S, 4),
]
PER_LINE = 12  # of "0x0000, " in 100 columns


def print_licence() -> None:
    """Prints the licence of the gguf package as a comment."""
    (licence,) = (f for f in files("gguf") or [] if f.name == "LICENSE")
    for line in licence.read_text().splitlines():
        print(f"// {line}" if line else "//")


def main() -> None:
    print("// Written by make_point_tables.py from the package gguf (https://github.com/ggml-org),")
    print("// whose licence is:\n//")
    print_licence()
    print("//\n// Coordinate j of a point is in bits 2 j of an entry, and in bits 4 j in IQ3_*.")
    for name, format_, bits in TABLES:
        count, size = format_.grid_shape
        assert size * bits == 16
        data = bytes.fromhex(format_.grid_hex.decode())
        assert len(data) == 2 * count
        words = [f"0x{data[i + 1]:02x}{data[i]:02x}," for i in range(0, len(data), 2)]
        print(f"inline constexpr std::array<uint16_t, {count}> {name} = {{{{")
        for i in range(0, count, PER_LINE):
            print("    " + " ".join(words[i : i + PER_LINE]))
        print("}};")


if __name__ == "__main__":
    main()
