"""Programs of three families, on the CPU as a SYCL device: the tokens and logits of the CPU's own
kernels. Attention in a window and norms of heads are Gemma 3's, experts Qwen3-MoE's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.parity.tiny_models import make

PROGRAM = os.environ["PAGEMILL_TEST_RUN_ON_SYCL"]
# Relative to the largest logit. With f32 activations, too, keys and values are rounded to bf16:
# another order of additions may round them to the next number.
TOLERANCES = {"f32": "0.01", "bf16": "0.05"}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_moe"])
def test_tokens_and_logits_are_those_of_the_cpu(family: str, dtype: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    file = tmp_path / "program"
    file.write_text(build(ModelSource.open(tmp_path), BuildOptions()).program_text)
    done = subprocess.run(
        [PROGRAM, file, dtype, TOLERANCES[dtype]], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), (family, dtype)
