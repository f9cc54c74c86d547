"""Programs give the bits of the CPU on a device that executes work later than enqueued, in memory
that the host cannot read: with several steps in flight, kernel by kernel and from graphs. So do
requests through the engine, whose tokens stay on the device where the next step reads them, and
those with drafts, on the device and on the CPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.parity.tiny_decoders import DECODERS
from tests.parity.tiny_models import make

PROGRAM = os.environ.get("PAGEMILL_TEST_RUN_ON_TEST_DEVICE", "")
GENERATE = os.environ.get("PAGEMILL_TEST_GENERATE_ON_TEST_DEVICE", "")
WITH_BF16 = ("llama", "gemma3", "qwen3_moe", "mamba2", "deepseek_v2")


@pytest.mark.skipif(
    not PROGRAM or not GENERATE,
    reason="PAGEMILL_TEST_RUN_ON_TEST_DEVICE and ..._GENERATE_ON_TEST_DEVICE name no programs",
)
@pytest.mark.parametrize("family", DECODERS)
def test_bits_and_tokens_are_those_of_the_cpu(family: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    file = tmp_path / "program"
    file.write_text(build(ModelSource.open(tmp_path), BuildOptions()).program_text)
    for program in (PROGRAM, GENERATE):
        for dtype in ("f32", "bf16") if family in WITH_BF16 else ("f32",):
            done = subprocess.run(
                [program, file, dtype], capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), (program, dtype)
