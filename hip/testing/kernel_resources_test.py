"""What kernels use of AMD GPUs, as clang reports it: bars for every kernel and architecture.

A kernel with scratch memory keeps arrays, or registers that it spills, in global memory. Occupancy
is the number of wavefronts that a SIMD unit has registers for: with one, nothing hides the latency
of memory. Scalar registers are spilled to lanes of vector registers, which is cheap: no bar.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEAST_OCCUPANCY = 2

# Kernels of which a SIMD unit may have one wavefront, by their names: attention with heads of more
# than 64 elements, for its registers, and the gated delta rule with decays for each of more than
# 128 keys, for its shared memory. Products of 32 and 64 rows on NVIDIA's tensor cores are never
# launched.
ALONE = re.compile(r"AttendMatrixItemI.*Li8E|DeltaHeadI.*Li256ELb1E|FewRowsI.*Li[48]E")

# Products by warps of 32 lanes, which a GPU with 64 never launches: there they trap, and have fewer
# registers than their sums alone would need.
TRAPS = re.compile(r"MatrixCoreTileI.*Li32E")
FEWEST_REGISTERS = 64

# Bytes of shared memory (LDS) that every GPU has for a block.
MOST_SHARED_BYTES = 64 << 10

_REMARK = re.compile(r"remark: +([^:]+): (\S+) \[-Rpass-analysis=kernel-resource-usage\]")


@dataclass(frozen=True)
class Use:
    """What a kernel uses, with its name as the linker sees it."""

    kernel: str
    scratch_bytes: int  # of a lane
    registers: int  # of a lane, for vectors
    shared_bytes: int  # of a block, static
    occupancy: int
    has_dynamic_stack: bool


def uses() -> Iterator[Use]:
    """Every kernel for every architecture."""
    for path in os.environ["PAGEMILL_TEST_KERNEL_RESOURCES"].split():
        kernel: dict[str, str] = {}
        for key, value in _REMARK.findall(Path(path).read_text(encoding="utf-8")):
            kernel[key] = value
            if key == "LDS Size [bytes/block]":  # the last of a kernel
                yield Use(
                    kernel["Function Name"],
                    int(kernel["ScratchSize [bytes/lane]"]),
                    int(kernel["VGPRs"]),
                    int(value),
                    int(kernel["Occupancy [waves/SIMD]"]),
                    kernel["Dynamic Stack"] != "False",
                )
                kernel = {}
        assert not kernel, f"{path}: another format of clang"


def _traps(use: Use) -> bool:
    return TRAPS.search(use.kernel) is not None and use.registers < FEWEST_REGISTERS


def test_there_are_kernels() -> None:
    """Every op has kernels, in three types of activations and for three architectures."""
    assert len(list(uses())) > 600


def test_no_kernel_uses_scratch_memory() -> None:
    """Neither stacks nor spilled vector registers."""
    assert not [use for use in uses() if use.scratch_bytes or use.has_dynamic_stack]


def test_every_simd_unit_has_several_wavefronts() -> None:
    """Registers leave room for a second one, except for what is known."""
    several = [use for use in uses() if not (ALONE.search(use.kernel) or _traps(use))]
    assert not [use for use in several if use.occupancy < LEAST_OCCUPANCY]


def test_static_shared_memory_fits() -> None:
    """Dynamic shared memory comes on top, when a kernel is launched."""
    assert not [use for use in uses() if use.shared_bytes > MOST_SHARED_BYTES]
