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
# activation has 8 bits (seen: 0.018), and a router may choose another expert (seen: 0.068).
TOLERANCES = {
    ("llama", "f32"): 0.002,
    ("llama", "bf16"): 0.05,
    ("gemma3", "f32"): 0.002,
    ("gemma3", "bf16"): 0.05,
    ("qwen3_moe", "f32"): 0.002,
    ("qwen3_moe", "bf16"): 0.15,
    ("deepseek_v2", "f32"): 0.002,
    ("mamba2", "f32"): 0.002,
}


@pytest.mark.skipif(not PROGRAM, reason="PAGEMILL_TEST_RUN_ON_SYCL names no program")
@pytest.mark.parametrize(("family", "dtype"), TOLERANCES)
def test_tokens_and_logits_are_those_of_the_cpu(family: str, dtype: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    file = tmp_path / "program"
    file.write_text(build(ModelSource.open(tmp_path), BuildOptions()).program_text)
    done = subprocess.run(
        [PROGRAM, file, dtype, str(TOLERANCES[family, dtype])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
