"""Programs of several families, on the CPU as a SYCL device: the tokens and logits of the CPU's own
kernels in f32. Attention in a window and norms of heads are Gemma 3's, experts Qwen3-MoE's, latents
DeepSeek-V2's, recurrent states Mamba-2's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.parity.tiny_models import make

PROGRAM = os.environ.get("PAGEMILL_TEST_RUN_ON_SYCL", "")

# Differences relative to the largest logit. In f32, too, keys and values are rounded to bf16:
# another order of additions may round them to the next number (seen: 2.4e-4). In bf16 each
# activation has 8 bits (seen: 0.018).
TOLERANCES = {"f32": 0.002, "bf16": 0.05}

# How many of the 23 rows of logits of a case may differ by more. In bf16, a router may choose
# another expert for a token (seen: 2 rows, one by 0.2), as products are rounded by oneDNN's
# kernels for the machine.
CASES = {
    ("llama", "f32"): 0,
    ("llama", "bf16"): 0,
    ("gemma3", "f32"): 0,
    ("gemma3", "bf16"): 0,
    ("qwen3_moe", "f32"): 0,
    ("qwen3_moe", "bf16"): 3,
    ("deepseek_v2", "f32"): 0,
    ("mamba2", "f32"): 0,
}


@pytest.mark.skipif(not PROGRAM, reason="PAGEMILL_TEST_RUN_ON_SYCL names no program")
@pytest.mark.parametrize(("family", "dtype"), CASES)
def test_tokens_and_logits_are_those_of_the_cpu(family: str, dtype: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    file = tmp_path / "program"
    file.write_text(build(ModelSource.open(tmp_path), BuildOptions()).program_text)
    done = subprocess.run(
        [PROGRAM, file, dtype, str(TOLERANCES[dtype]), str(CASES[family, dtype])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
