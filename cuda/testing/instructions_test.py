"""Bars on the machine code of kernels that decide the speed of a step.

Registers and bytes of local memory have bars for all kernels: kernel_resources_test.py. Here is
what they do not show: whether a kernel is compiled to the instructions that it was written for. A
line of BARS is a kernel, and prefixes of instructions that its code must have for every
architecture. A kernel that gains such instructions gains a line. What the prefixes stand for:

    HMMA.16816.F32.BF16   the product of tiles of bf16 on tensor cores
    LDG.E.128, STG.E.128  16 bytes of global memory for each lane at once
    LDS.128               16 bytes of shared memory for each lane at once
    LDGSTS                an asynchronous copy from global to shared memory
    MUFU.EX2              a power of two by the unit for it, and not by a series
    LDL, STL              local memory: arrays and registers that were spilled
"""

import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ARCHITECTURES = ("sm_80", "sm_90a")

BARS = {
    "AddRmsNormGroup": ("MUFU.RSQ",),
    "AttendHead": ("MUFU.EX2",),
    "AttendTokens": ("LDS.128", "MUFU.EX2"),
    "DrawToken": ("LDS.64", "MUFU.EX2"),
    "MultiplyFewRows": ("HMMA.16816.F32.BF16", "LDG.E.128"),
    "MultiplyManyRows": ("HMMA.16816.F32.BF16", "LDG.E.128"),
    "MultiplyRows": ("LDG.E.128",),
    "ReverseGroups": ("LDGSTS.E.BYPASS.128", "LDS.128", "STG.E.128"),
}

# Spilled today, with the bytes that kernel_resources_test.py allows.
SPILLED = ("AttendTokens",)


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, str], Counter[str]]:
    """(architecture, kernel as the linker sees it) -> how often it has an instruction."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for path in os.environ["PAGEMILL_TEST_INSTRUCTIONS"].split():
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            architecture, kernel, instruction, count = line.split()
            found[architecture, kernel][instruction] += int(count)
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", BARS)
def test_kernel_has_its_instructions(
    kernels: dict[tuple[str, str], Counter[str]], name: str, architecture: str
) -> None:
    """Each template of the kernel has each of the instructions."""
    templates = {
        kernel: instructions
        for (of, kernel), instructions in kernels.items()
        if of == architecture and name in kernel
    }
    assert templates, f"no kernel {name} for {architecture}: was it renamed?"
    for kernel, instructions in templates.items():
        for prefix in BARS[name]:
            assert any(i.startswith(prefix) for i in instructions), f"{kernel} has no {prefix}"


def test_no_kernel_uses_local_memory(kernels: dict[tuple[str, str], Counter[str]]) -> None:
    """Except for what is known to spill."""
    slow = {
        key
        for key, instructions in kernels.items()
        if any(instruction.startswith(("LDL", "STL")) for instruction in instructions)
        and not any(name in key[1] for name in SPILLED)
    }
    assert not slow
