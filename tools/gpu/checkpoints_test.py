"""Random checkpoints are ones that the engine reads, with numbers of the right size."""

import math
from pathlib import Path

import pytest
from pagemill.ops.program_text import from_text
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file

from tools.gpu import checkpoints
from tools.gpu.work import weight_bytes


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
def test_a_program_can_be_built(weights: str, tmp_path: Path):
    size = checkpoints.write("tiny", weights, tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert built.program_text.count("op paged_attention") == 1
    layer = 3 * 64 * 160 + 2 * 64 * 64 + 2 * 32 * 64
    head = 2 * 64 * 300
    expected = head + layer * (2 if weights == "bf16" else 1)
    assert weight_bytes(from_text(built.program_text)) == expected
    assert size > expected


def test_numbers_differ_and_keep_the_size_of_activations(tmp_path: Path):
    checkpoints.write("tiny", "bf16", tmp_path)
    values = load_file(tmp_path / "model.safetensors")
    up, gate = (values[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("up", "gate"))
    assert not up.equal(gate)
    assert float(up.float().std()) == pytest.approx(64**-0.5, rel=0.05)
    assert values["model.norm.weight"].float().eq(1).all()


def test_scales_give_e4m3_values_the_size_of_weights(tmp_path: Path):
    checkpoints.write("tiny", "fp8", tmp_path)
    values = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    scale = values[f"{name}_scale_inv"]
    assert scale.shape == (1, 2)
    deviation = float(values[name].float().std() * scale[0, 0])
    assert deviation == pytest.approx(160**-0.5, rel=0.05)


def test_the_largest_has_the_parameters_of_its_name():
    stored = checkpoints.tensors(checkpoints.MODELS["llama-8b"], "bf16")
    parameters = sum(math.prod(tensor.shape) for tensor in stored)
    assert parameters == pytest.approx(8.03e9, rel=0.001)
