"""Tensors that no layer uses are rejected, unless the family or the method knows them; scales of
the KV cache are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagemill.models.base import Model
from pagemill.models.table import ARCHITECTURES, model_class
from pagemill.ops.shard import Shard
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.quantization.notes import OTHER_SCALES
from pagemill.quantization.table import method_of
from pagemill.quantization.unused import check_all_used
from pagemill.runner.build import BuildOptions, build
from pagemill.weights import ModelSource, WeightsError
from pagemill.weights.errors import UnusedTensorError

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "attention_bias": True,
    "eos_token_id": 2,
}
ATTENTION = "model.layers.1.self_attn"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shapes: dict[str, tuple[int, ...]] = {"lm_head.weight": (16, 32), "model.norm.weight": (32,)}
    shapes["model.embed_tokens.weight"] = (16, 32)
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        shapes |= {f"{prefix}.self_attn.{name}_proj.weight": (32, 32) for name in "qkvo"}
        shapes |= {f"{prefix}.self_attn.{name}_proj.bias": (32,) for name in "qkvo"}
        shapes |= {f"{prefix}.mlp.{name}_proj.weight": (64, 32) for name in ("gate", "up")}
        shapes[f"{prefix}.mlp.down_proj.weight"] = (32, 64)
        for name in ("input", "post_attention"):
            shapes[f"{prefix}.{name}_layernorm.weight"] = (32,)
    tensors = {name: torch.ones(shape) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def _change(directory: Path, tensors: dict[str, torch.Tensor], **config: Any) -> ModelSource:
    """The model with other tensors beside its own and another configuration."""
    path = directory / "model.safetensors"
    save_file(load_file(path) | tensors, path)
    (directory / "config.json").write_text(json.dumps(CONFIG | config))
    return ModelSource.open(directory)


def _build(source: ModelSource, **options: Any) -> tuple[str, ...]:
    return build(source, BuildOptions(rewrite=False, **options)).notes


def test_every_tensor_is_used(directory: Path) -> None:
    assert _build(ModelSource.open(directory)) == ()
    for rank in range(2):  # the bias of a sum is added by one of the ranks
        assert _build(ModelSource.open(directory), shard=Shard(rank, 2)) == ()


def test_unused_tensors_are_named(directory: Path) -> None:
    biases = {f"{ATTENTION}.{name}_norm.weight": torch.ones(16) for name in "qk"}
    with pytest.raises(UnusedTensorError, match="does not use 2 of .*k_norm.weight', .*q_norm.we"):
        _build(_change(directory, biases))
    rest = {f"vision.{i}": torch.ones(2, dtype=torch.int64) for i in range(7)}
    with pytest.raises(UnusedTensorError, match=r"use 9 of .*'vision\.0', .*'vision\.2', \.\.\.;"):
        _build(_change(directory, rest))


def test_a_setting_that_leaves_tensors_out_is_seen(directory: Path) -> None:
    with pytest.raises(UnusedTensorError, match=r"use 8 of .*0\.self_attn\.k_proj\.bias'"):
        _build(_change(directory, {}, attention_bias=False))
    with pytest.raises(UnusedTensorError, match=r"does not use 13 of .*model\.layers\.1\.input_l"):
        _build(_change(directory, {}, num_hidden_layers=1))


def test_what_a_family_may_leave_unread(directory: Path) -> None:
    buffers = {f"{ATTENTION}.rotary_emb.inv_freq": torch.ones(8)}
    # Tied, lm_head is not used; and neither is any head when vectors are pooled.
    assert _build(_change(directory, buffers, tie_word_embeddings=True)) == ()
    assert _build(_change(directory, {}), pooling="mean") == ()
    with pytest.raises(UnusedTensorError, match=r"does not use 1 of .*'lm_head\.bias'"):
        _build(_change(directory, {"lm_head.bias": torch.ones(16)}))


def test_a_quantized_head_that_is_not_used(directory: Path) -> None:
    quantized = {"lm_head.weight": torch.ones(16, 32).to(torch.float8_e4m3fn)}
    quantized["lm_head.weight_scale"] = torch.tensor(0.5)
    quantized["lm_head.input_scale"] = torch.tensor(0.5)
    source = _change(directory, quantized, quantization_config={"quant_method": "fp8"})
    assert _build(source, pooling="mean") == () == _build(source)
    # Only that method knows such tensors.
    with pytest.raises(UnusedTensorError, match=r"'lm_head\.input_scale', 'lm_head\.weight_scale'"):
        _build(_change(directory, {}), pooling="mean")


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("weight", "weight_scale_2")),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                "config_groups": {
                    "group_0": {
                        "weights": {
                            "num_bits": 4,
                            "type": "float",
                            "strategy": "tensor_group",
                            "group_size": 16,
                        }
                    }
                },
            },
            ("weight_packed", "weight_global_scale"),
        ),
    ],
)
def test_a_head_in_nvfp4_that_is_not_used(
    directory: Path, section: object, names: tuple[str, str]
) -> None:
    values, factor = names
    head = {f"lm_head.{values}": torch.ones(16, 16, dtype=torch.uint8)}
    head["lm_head.weight_scale"] = torch.ones(16, 2).to(torch.float8_e4m3fn)
    head[f"lm_head.{factor}"] = torch.tensor(0.5)
    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors["lm_head.weight"]
    save_file(tensors, path)
    _build(_change(directory, head, quantization_config=section), pooling="mean")


def test_biases_of_zeros_beside_gptq(directory: Path) -> None:
    section = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    name = "model.layers.0.mlp.up_proj.bias"
    source = _change(directory, {name: torch.zeros(64)}, quantization_config=section)
    assert _build(source) == ()
    source = _change(directory, {name: torch.ones(64)}, quantization_config=section)
    with pytest.raises(UnusedTensorError, match=name):
        _build(source)


def test_parts_of_a_model_are_checked_together(directory: Path) -> None:
    """A program of some layers claims fewer tensors; the union counts."""
    source = ModelSource.open(directory)
    model: Model = model_class("LlamaForCausalLM").from_config(source.config)
    claimed = {tensor.name for tensor in source.tensors if ".layers.0." in tensor.name}
    method, ignored = method_of(source.config), model.ignored
    with pytest.raises(UnusedTensorError):
        check_all_used(source, method, claimed, ignored)
    rest = {tensor.name for tensor in source.tensors} - claimed
    check_all_used(source, method, claimed | rest, ignored)


def test_every_family_gives_its_reasons() -> None:
    for architecture in ARCHITECTURES:
        assert all(model_class(architecture).ignored.values())


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"k_scale": 0.5, "v_scale": 0.25}, (0.5, 0.25)),
        ({"kv_scale": 0.5}, (0.5, 0.5)),
        ({"k_proj.output_scale": 0.5, "v_proj.output_scale": 2.0}, (0.5, 2.0)),
        ({"k_proj.k_scale": [0.5, 1.0], "v_proj.v_scale": [[4.0], [2.0]]}, (1.0, 4.0)),
        ({"k_scale": 0.5}, (1.0, 1.0)),
        ({}, (1.0, 1.0)),
    ],
)
def test_scales_of_the_cache(directory: Path, tensors: dict[str, Any], expected: object) -> None:
    named = {f"{ATTENTION}.{name}": torch.tensor(value) for name, value in tensors.items()}
    others = {f"{ATTENTION}.{name}": torch.ones(1) for name in ("q_scale", "k_zero_point")}
    source = _change(directory, named | others)
    weights = WeightBinder(Trace(), source)
    assert weights.kv_scales(ATTENTION) == expected
    assert weights.kv_scales("model.layers.0.self_attn") == (1.0, 1.0)
    # Those that nothing uses are no reason to refuse a checkpoint.
    assert _build(source) == (OTHER_SCALES,)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), [[1.0, 1.0]] * 2, []])
def test_scales_that_are_none(directory: Path, value: Any) -> None:
    name = f"{ATTENTION}.k_scale"
    source = _change(directory, {name: torch.tensor(value), f"{ATTENTION}.v_scale": torch.ones(1)})
    with pytest.raises(WeightsError, match=f"{name} is f32 .* it must be numbers > 0"):
        _build(source)
