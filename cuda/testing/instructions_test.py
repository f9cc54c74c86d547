"""Bars on the machine code of kernels that decide the speed of a step.

Registers and local memory (spills, arrays) have bars for all kernels: kernel_resources_test.py.
Here is what they do not show: whether a kernel is compiled to the instructions that it was written
for. A line of BARS is a kernel of a source file, and prefixes of instructions that its code must
have for every architecture. A kernel that gains such instructions gains a line. What the prefixes
stand for:

    ATOMG.E.INC           blocks that count how many of them are done
    F2FP.SATFINITE.E4M3   two floats become fp8 by the instruction for it
    HGMMA.64, QGMMA.64    the product of tiles out of shared memory by four warps (wgmma): bf16, fp8
    HMMA.16816.F32.BF16   the product of tiles of bf16 on tensor cores
    IMMA.16832.S8.S8      the product of tiles of int8 on tensor cores
    LDG.E.128, LDG.E.64   16 or 8 bytes of global memory for each lane at once
    LDS.128               16 bytes of shared memory for each lane at once
    LDGSTS                an asynchronous copy from global to shared memory
    LDSM                  operands of a product of tiles out of shared memory
    MUFU.EX2              a power of two by the unit for it, and not by a series
    PRMT                  a byte of one word in the place of a byte of another
    STG.E.128, STG.E.64   16 or 8 bytes of each lane to global memory at once
    STS.128               16 bytes of each lane to shared memory at once
    STSM                  results of a product of tiles to shared memory
    USETMAXREG            registers that warps which load leave to those which multiply
    UTMALDG               a tile of global memory, loaded by the unit for it (TMA)
"""

import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

ARCHITECTURES = ("sm_80", "sm_90a")

# Of sources that are not compiled for all of them.
ARCHITECTURES_OF = {
    "flashinfer/hopper_head128": ("sm_90a",),
    "flashinfer/hopper_head256": ("sm_90a",),
    "grouped_linear/wgmma_f8_groups": ("sm_90a",),
    "grouped_linear/wgmma_groups": ("sm_90a",),
    "linear/wgmma_decoded": ("sm_90a",),
    "linear/wgmma_rows": ("sm_90a",),
}

BARS = {
    ("add_rms_norm/add_rms_norm", "AddRmsNormGroup"): ("MUFU.RSQ",),
    ("add_rms_norm/add_rms_norm", "BFloat16ELi8E"): ("LDG.E.128", "STG.E.128"),
    ("all_reduce_add_rms_norm/all_reduce_add_rms_norm", "SumAddRmsNorm"): (
        "LDG.E.128",
        "STG.E.128",
    ),
    ("attention/attention", "AttendTokens"): ("LDS.128", "MUFU.EX2"),
    ("attention/tensor_cores", "AttendTokensOnCores"): (
        "HMMA.16816.F32.BF16",
        "LDGSTS.E.BYPASS.128",
        "LDSM.16.M",
        "MUFU.EX2",
    ),
    ("draw_tokens/draw_tokens", "DrawToken"): ("LDS.64", "MUFU.EX2"),
    ("emulation/vocabulary_objects", "ReverseGroups"): ("LDGSTS.E.BYPASS.128", "LDS.128"),
    **{
        (f"flashinfer/head{head}_rows{rows}", "BatchPrefillWithPagedKVCacheKernel"): (
            "HMMA.16816.F32.BF16",
            "LDGSTS.E.BYPASS",
            "LDSM.16.M",
            "MUFU.EX2",
        )
        for head, rows in ((128, 16), (128, 64), (128, 128), (256, 16), (256, 64))
    },
    **{
        (f"flashinfer/hopper_head{head}", "PrefillWithKVCacheKernel"): (
            f"HGMMA.64x{head}x16.F32.BF16",
            f"HGMMA.64x{keys}x16.F32.BF16",
            "LDGSTS.E.BYPASS.LTC128B.128",
            "MUFU.EX2",
            "USETMAXREG",
            "UTMALDG",
        )
        for head, keys in ((128, 96), (256, 32))
    },
    ("gated_activation/gated_activation", "BFloat16ELi8E"): ("LDG.E.128", "STG.E.128"),
    ("gated_delta/delta_chunks", "DeltaChunks"): (
        "HMMA.16816.F32.BF16",
        "LDGSTS.E.BYPASS.128",
        "LDS.128",
        "LDSM.16.M",
        "MUFU.EX2",
    ),
    ("gated_delta/gated_delta", "DeltaHead"): ("LDG.E.64", "LDS.128", "STS.128"),
    ("gated_delta/gated_delta", "DeltaStep"): ("LDG.E.64", "LDS.128", "STG.E.64"),
    **{
        ("grouped_linear/wgmma_groups", tile): (
            f"HGMMA.64x{rows}x16.F32.BF16",
            "LDGSTS.E.BYPASS.128",
            "STSM.16.MT88.4",
            "USETMAXREG",
            "UTMALDG.3D",
        )
        for tile, rows in (("LargeTile", 128), ("SmallTile", 16))
    },
    **{
        ("grouped_linear/wgmma_f8_groups", tile): (
            "LDGSTS.E.BYPASS.128",
            f"QGMMA.64x{rows}x32.F32.E4M3.E4M3",
            "STSM.16.MT88.4",
            "USETMAXREG",
            "UTMALDG.3D",
        )
        for tile, rows in (("LargeF8Tile", 128), ("SmallF8Tile", 16))
    },
    ("grouped_linear/wgmma_f8_groups", "RoundGroups"): ("F2FP.SATFINITE.E4M3", "LDG.E.128"),
    ("latent_attention/tensor_cores", "AttendItemsOfLatents"): (
        "HMMA.16816.F32.BF16",
        "LDGSTS.E.BYPASS.128",
        "LDSM.16.M",
        "MUFU.EX2",
    ),
    ("linear/cublas_lt_fp8", "RoundGroups"): ("LDG.E.128", "STG.E.64"),
    ("linear/cublas_lt_fp8", "RoundRow"): ("LDG.E.128", "STG.E.64"),
    ("linear/int8_tensor_cores", "MultiplyTile"): ("IMMA.16832.S8.S8",),
    ("linear/linear", "MultiplyRows"): ("LDG.E.128",),
    ("linear/tensor_cores", "StagedRows"): (
        "HMMA.16816.F32.BF16",
        "LDGSTS.E.BYPASS.128",
        "LDS.128",
    ),
    ("linear/tensor_cores", "FewRows"): ("HMMA.16816.F32.BF16", "LDG.E.128"),
    ("linear/tensor_cores", "ManyRows"): ("HMMA.16816.F32.BF16", "LDG.E.128"),
    # Q4_K and Q5_K, whose nibbles are loaded eight bytes at a time.
    ("linear/tensor_cores", "StoredWeightsILNS_5DTypeE20ELb1E"): ("LDG.E.64", "PRMT"),
    ("linear/tensor_cores", "StoredWeightsILNS_5DTypeE21ELb1E"): ("LDG.E.64", "PRMT"),
    **{
        ("linear/wgmma_decoded", tile): (
            "ATOMG.E.INC",
            f"HGMMA.64x{rows}x16.F32.BF16",
            "STG.E.128",
            "STS.128",
            "UTMALDG.3D",
        )
        for tile, rows in (("SomeTile", 64), ("MoreTile", 128))
    },
    # Words of AWQ in tiles: four at a time.
    ("linear/wgmma_decoded", "AwqTiles"): ("LDG.E.128",),
    **{
        ("linear/wgmma_rows", tile): (
            "ATOMG.E.INC",
            "F2FP.SATFINITE.E4M3",
            "LDG.E.128",
            "LDS.64",
            f"QGMMA.64x{rows}x32.F32.E4M3.E4M3",
            "STG.E.128",
            "UTMALDG.3D",
        )
        for tile, rows in (("FewTile", 16), ("ManyTile", 64), ("WideTile", 64))
    },
    ("moe_combine/moe_combine", "BFloat16ELi8E"): ("LDG.E.128", "STG.E.128"),
    ("paged_attention/paged_attention", "AttendHead"): ("MUFU.EX2",),
    ("rms_norm/rms_norm", "BFloat16ELi8E"): ("LDG.E.128", "MUFU.RSQ", "STG.E.128"),
    ("split/split", "BFloat16ELi8E"): ("LDG.E.128", "STG.E.128"),
    ("state_space_scan/state_space_scan", "ScanHead"): ("LDG.E.64", "LDS.128", "STS.128"),
    ("state_space_scan/state_space_scan", "ScanStep"): ("LDG.E.64", "LDS.128", "STG.E.64"),
}


@dataclass(frozen=True)
class Kernel:
    """A kernel for an architecture, with its name as the linker sees it."""

    source: str  # its folder and file: "linear/tensor_cores"
    architecture: str
    name: str


@pytest.fixture(scope="module")
def kernels() -> dict[Kernel, Counter[str]]:
    """How often each kernel has an instruction."""
    found: dict[Kernel, Counter[str]] = defaultdict(Counter)
    for path in os.environ["PAGEMILL_TEST_INSTRUCTIONS"].split():
        # .../linear/linear_objects_objs/tensor_cores.cc.pic.o.txt
        folder, _, file = Path(path).parts[-3:]
        source = f"{folder}/{file.split('.')[0]}"
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            architecture, kernel, instruction, count = line.split()
            found[Kernel(source, architecture, kernel)][instruction] += int(count)
    return found


@pytest.mark.parametrize(
    ("source", "name", "architecture"),
    [
        (source, name, architecture)
        for source, name in BARS
        for architecture in ARCHITECTURES_OF.get(source, ARCHITECTURES)
    ],
)
def test_kernel_has_its_instructions(
    kernels: dict[Kernel, Counter[str]], source: str, name: str, architecture: str
) -> None:
    """Each template of the kernel has each of the instructions."""
    templates = [
        kernel
        for kernel in kernels
        if (kernel.source, kernel.architecture) == (source, architecture) and name in kernel.name
    ]
    assert templates, f"{source}.cc has no kernel {name} for {architecture}: was it renamed?"
    for kernel in templates:
        for prefix in BARS[source, name]:
            found = any(instruction.startswith(prefix) for instruction in kernels[kernel])
            assert found, f"{kernel.name} has no {prefix}"
