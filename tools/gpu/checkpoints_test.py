"""Random checkpoints are ones that the engine reads, with numbers of the right size."""

import math
from pathlib import Path

import pytest
import torch
from pagemill.ops.program_text import from_text
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file

from tools.gpu import checkpoints
from tools.gpu.work import decode_bytes, prefill_operations, weight_bytes


@pytest.mark.parametrize("weights", checkpoints.WEIGHTS)
def test_a_program_can_be_built(weights: str, tmp_path: Path):
    size = checkpoints.write("tiny", weights, tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert built.program_text.count("op paged_attention") == 1
    layer = 3 * 64 * 160 + 2 * 64 * 64 + 2 * 32 * 64
    head = 2 * 64 * 300
    expected = head + int(layer * {"bf16": 2, "fp8": 1, "awq": 0.5, "nvfp4": 0.5}[weights])
    assert weight_bytes(from_text(built.program_text)) == expected
    assert size > expected


def test_a_model_with_experts_reads_those_that_tokens_have(tmp_path: Path):
    checkpoints.write("tiny-experts", "bf16", tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions())
    program = from_text(built.program_text)
    attention, router, expert = 2 * 64 * 64 + 2 * 32 * 64, 8 * 64, 3 * 32 * 64
    others = 2 * (64 * 300 + attention + router)
    assert weight_bytes(program) == others + 2 * 8 * expert
    # 2 of 8 experts; a cache of 2 x 32 numbers. Two requests have 1 - (3 / 4)^2 of them.
    assert decode_bytes(program, 1, 10) == others + 2 * 2 * expert + 2 * 10 * 2 * 32
    expected = round(2 * 8 * expert * (1 - 0.75**2))
    assert decode_bytes(program, 2, 10) == others + expected + 2 * 2 * 10 * 2 * 32
    products = attention + router + 2 * expert
    pairs = 10 * 10 // 2
    assert prefill_operations(program, 10) == 2 * (10 * products + 64 * 300) + 4 * 2 * 32 * pairs


def test_a_model_with_states_reads_and_writes_them(tmp_path: Path):
    checkpoints.write("tiny-states", "bf16", tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert built.program_text.count("op gated_delta") == 3
    program = from_text(built.program_text)
    mlp, head = 3 * 64 * 160, 64 * 300
    delta = 64 * (2 * 16 + 2 * 32) + 64 * 2 * 2 + 64 * 32
    attention = (2 * 64 + 2 * 32 + 64) * 64
    weights = 2 * (head + 4 * mlp + 3 * delta + attention)
    assert weight_bytes(program) == weights
    # Two heads of 16 x 16 and three rows of the convolution's 64 channels, in f32.
    states = 3 * 2 * 4 * (2 * 16 * 16 + 3 * 64)
    assert decode_bytes(program, 2, 10) == weights + 2 * (states + 2 * 10 * 2 * 32)


def test_latents_are_read_once_for_keys_and_values(tmp_path: Path):
    checkpoints.write("tiny-latents", "bf16", tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions())
    program = from_text(built.program_text)
    before = 64 * 48 + 48 * 2 * 32 + 64 * 48  # queries in two products, rows of the cache
    heads = 2 * 2 * 16 * 32
    products = before + heads + 2 * 16 * 64 + 3 * 64 * 160
    assert weight_bytes(program) == 2 * (64 * 300 + products)
    assert decode_bytes(program, 2, 10) == 2 * (64 * 300 + products + 2 * 10 * 48)
    pairs = 10 * 10 // 2
    scored = 2 * 2 * (48 + 32) * pairs
    assert prefill_operations(program, 10) == 2 * (10 * products + 64 * 300) + scored


def test_a_checkpoint_replaces_what_was_there(tmp_path: Path):
    (tmp_path / "reference.json").write_text("{}")
    checkpoints.write("tiny", "bf16", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


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


def test_scales_give_integers_the_size_of_weights(tmp_path: Path):
    checkpoints.write("tiny", "awq", tmp_path)
    values = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    words = values[f"{name}.qweight"]
    assert words.shape == (160, 64 // 8) and values[f"{name}.qzeros"].eq(-0x77777778).all()
    integers = (words.unsqueeze(-1) >> 4 * torch.arange(8)) & 15
    deviation = float((integers - 8).float().std() * values[f"{name}.scales"][0, 0])
    assert deviation == pytest.approx(160**-0.5, rel=0.05)


def test_scales_give_e2m1_values_the_size_of_weights(tmp_path: Path):
    checkpoints.write("tiny", "nvfp4", tmp_path)
    values = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    pairs = values[f"{name}.weight"].int()
    magnitudes = table[torch.stack([pairs & 7, pairs >> 4 & 7])]
    scale = values[f"{name}.weight_scale"].float()
    assert scale.shape == (64, 160 // 16) and float(scale.min()) == float(scale.max())
    size = float(magnitudes.square().mean().sqrt() * scale[0, 0] * values[f"{name}.weight_scale_2"])
    assert size == pytest.approx(160**-0.5, rel=0.05)


def test_the_largest_has_the_parameters_of_its_name():
    stored = checkpoints.tensors(checkpoints.MODELS["llama-8b"], "bf16")
    parameters = sum(math.prod(tensor.shape) for tensor in stored)
    assert parameters == pytest.approx(8.03e9, rel=0.001)
