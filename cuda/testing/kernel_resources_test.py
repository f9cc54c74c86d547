"""What kernels use of a GPU, as ptxas reports it: bars that hold for every kernel and architecture.

A kernel that spills registers or keeps arrays in local memory is slow, and one that uses more than
64 registers cannot be launched with blocks of 1,024 threads (65,536 registers).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_REGISTERS = 64

# Blocks of fewer threads: what they may use. The first name that fits counts.
REGISTERS = {
    "Li2EEEEEvNS1_11MatrixGroup": 168,  # FewRows of 16 rows
    "Li4EEEEEvNS1_11MatrixGroup": 255,  # likewise of 32, with words of AWQ
    "Li8EEEEEvNS1_11MatrixGroup": 192,  # likewise of 64
    "Li4EEEEEvNS0_7RoutingE": 255,  # likewise of 32, of experts
    "AttendHead": 128,
    "AttendItems": 255,
    "AttendLatents": 255,
    "AttendTokens": 255,
    "BatchPrefillWithPagedKVCacheKernel": 255,
    "Li256ELb1EEEvNS0_13DeltaOperands": 192,  # many keys with a decay for each
    "DeltaChunks": 255,
    "DeltaHead": 168,
    "DeltaStep": 168,
    "StagedRows": 255,
    "DTypeE4ELNS0_10ScaleShapeE2EEENS0_7FewRows": 140,  # int8 in blocks, of eight rows
    "FewRows": 128,
    "ManyRows": 168,
    "MultiplyDecoded": 128,
    "MultiplyGroup": 80,
    "MultiplyHead": 80,
    "MultiplyWgmmaGroups": 168,
    "MultiplyWgmmaRowsINS1_7FewTile": 64,  # so that the kernel behind finds registers
    "MultiplyWgmmaRows": 128,
    "MultiplyTransposed": 80,
    "PrefillWithKVCacheKernel": 168,
    "RotateAndStore": 96,
    "ScanChannels": 128,
    "ScanHead": 168,
    "ScanStep": 128,
    "SelectPart": 128,
    "WkvHead": 192,
}

# Bytes that kernels with large tiles spill today, so that they spill no more; those of latents only
# beyond 512 elements. Fewer rows of a tile, or one block at a time on a multiprocessor, are to be
# timed on a GPU. The first name in the list that fits counts.
SPILLED = {
    "AttendItemINS0_8BFloat16ELi16E": 1788,  # heads of more than 128 elements, between their loops
    "AttendItemINS0_6Float8ELi16E": 1788,
    "AttendLatents": 352,
    "AttendTokensI": 8,  # without tensor cores
    # Tiles of 512 keys of 256 elements, for which no GPU has the shared memory.
    "KernelTraitsILNS_8MaskModeE1ELj16ELj1ELj8ELj16E": 1272,
    "BatchPrefillWithPagedKVCacheKernel": 568,  # FlashInfer's own choice of tiles
    "DrawToken": 128,  # blocks of 1,024 threads
    "int8_tensor_cores": 88,
    "ManyRows": 68,
    "MultiplyDecoded": 108,
    "SumAddRmsNorm": 16,  # blocks of 1,024 threads
    "PackedWeightsILNS_15QuantizedLayoutE1": 124,  # AWQ: where four rows of weights lie
}


@dataclass(frozen=True)
class Use:
    """What a kernel uses, with its name as the linker sees it."""

    kernel: str
    stack_bytes: int
    spilled_bytes: int
    registers: int


def uses() -> Iterator[Use]:
    """Every kernel for every architecture."""
    for path in os.environ["PAGEMILL_TEST_KERNEL_RESOURCES"].split():
        text = Path(path).read_text(encoding="utf-8")
        parts = re.findall(
            r"Function properties for (\S+)\s+"
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s+"
            r"ptxas info\s+: Used (\d+) registers",
            text,
        )
        assert parts or "Compiling entry" not in text, f"{path}: another format of ptxas"
        for kernel, stack, stores, loads, registers in parts:
            yield Use(kernel, int(stack), int(stores) + int(loads), int(registers))


def test_there_are_kernels() -> None:
    """Every op has kernels, in three types of activations and for two architectures."""
    assert len(list(uses())) > 200


def test_no_kernel_uses_local_memory() -> None:
    """Neither stacks nor spilled registers, except for what is known."""

    def most(use: Use) -> int:
        return next((n for name, n in SPILLED.items() if name in use.kernel), 0)

    slow = [use for use in uses() if max(use.stack_bytes, use.spilled_bytes) > most(use)]
    assert not slow


def test_every_block_fits_a_multiprocessor() -> None:
    """Registers of the largest block that a kernel is launched with."""

    def most(use: Use) -> int:
        return next((n for name, n in REGISTERS.items() if name in use.kernel), MOST_REGISTERS)

    assert not [use for use in uses() if use.registers > most(use)]
