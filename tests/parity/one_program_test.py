"""One program text of a quantized checkpoint runs on the CPU in f32, on a device in bf16 and in
torch; each target decides how to use its weights."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pagemill.ops.program_text import from_text
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity.executors import make_executor
from tests.parity.one_request import difference
from tests.parity.packed_checkpoints import Scheme, write_packed
from tests.parity.scaled_checkpoints import SCHEMES as SCALED
from tests.parity.scaled_checkpoints import write_scaled
from tests.parity.tiny_models import tiny_llama

PROGRAM = os.environ.get("PAGEMILL_TEST_RUN_ON_TEST_DEVICE", "")

# Tolerances, relative to the largest logit. Torch computes in f32 with the values of the
# checkpoint, as `transformers`. The CPU rounds the minima of q4_1 (see packed_parity_test). The
# device rounds every value of the step to bf16, by 2^-9 at most; some 30 roundings in a row add up
# like the root of their number, and logits are some 5 times smaller than the sums that they come
# from.
EXACT, ON_CPU, ON_DEVICE = 1e-4, 5e-3, 0.05

Write = Callable[[Path], PreTrainedModel]
CHECKPOINTS: dict[str, tuple[Write, str]] = {
    "awq": (lambda path: write_packed(path, Scheme("awq")), "awq"),
    "gptq": (lambda path: write_packed(path, Scheme("gptq")), "gptq"),
    "fp8": (lambda path: write_scaled(tiny_llama(), path, SCALED["fp8-block"]), "scaled"),
    "int8": (lambda path: write_scaled(tiny_llama(), path, SCALED["w8a8"]), "scaled"),
}


def products(printed: str, where: str) -> set[str]:
    """The kernels of `where`, each with its packed layout."""
    lines = printed.splitlines()
    return {line.removeprefix(f"{where} ") for line in lines if line.startswith(f"{where} ")}


@pytest.mark.skipif(not PROGRAM, reason="PAGEMILL_TEST_RUN_ON_TEST_DEVICE names no program")
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_one_text_for_all_targets(name: str, tmp_path: Path) -> None:
    write, layout = CHECKPOINTS[name]
    reference = write(tmp_path)
    source = ModelSource.open(tmp_path)
    text = build(source, BuildOptions()).program_text
    formats = {entry.format.layout for entry in from_text(text).quantized}
    assert formats == {layout}
    assert difference(make_executor("torch-rewritten", source), reference) <= EXACT
    assert difference(make_executor("native", source), reference) <= ON_CPU
    file = tmp_path / "program"
    file.write_text(text)
    command = [PROGRAM, str(file), "bf16", str(ON_DEVICE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    device, cpu = products(done.stdout, "device"), products(done.stdout, "cpu")
    assert device == {"linear enqueued as stored"}
    packed = {product for product in cpu if not product.endswith("as stored")}
    assert packed and not packed & device, "the CPU packs the weights that the device reads"
