"""Models on the emulated GPU: logits close to the CPU's, kernel by kernel and from graphs, and the
tokens of requests that are chosen on the GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.parity.tiny_models import make

PROGRAM = os.environ.get("PAGEMILL_TEST_GENERATE_ON_GPU", "")

# A fraction of the largest logit: sums of f32 in another order, in models of few layers.
TOLERANCE = "1e-4"


@pytest.mark.skipif(not PROGRAM, reason="PAGEMILL_TEST_GENERATE_ON_GPU names no program")
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_moe", "deepseek_v2", "mamba2"])
def test_logits_and_tokens_are_those_of_the_cpu(family: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    file = tmp_path / "program"
    file.write_text(build(ModelSource.open(tmp_path), BuildOptions()).program_text)
    done = subprocess.run([PROGRAM, file, TOLERANCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
