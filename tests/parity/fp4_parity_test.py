"""Logits of checkpoints in MXFP4 and NVFP4 equal those of `transformers` on the values that these
hold."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.fp4_checkpoints import write_mxfp4, write_mxfp4_matrices, write_nvfp4
from tests.parity.one_request import difference
from tests.parity.tiny_models import make, tiny_llama

# Both sides compute in f32 with the same weights: q8_0 holds those of MXFP4.
TOLERANCE = 1e-4
# q8_0 rounds half of NVFP4's weights. The root mean square of what that adds is 0.4 % of the
# weights'; seen after 21 products: 0.021. A wrong scale or order moves logits by half their size.
ROUNDED = 0.05
# Integer kernels multiply NVFP4's own codes and round activations to 8 bits instead: seen 0.034 and
# 0.038.
INTEGERS = 0.08


@pytest.mark.parametrize("kind", EXECUTORS)
def test_experts_in_mxfp4(kind: str, tmp_path: Path) -> None:
    reference = write_mxfp4(tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= TOLERANCE


@pytest.mark.parametrize("kind", EXECUTORS)
def test_matrices_in_mxfp4(kind: str, tmp_path: Path) -> None:
    reference = write_mxfp4_matrices(tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= TOLERANCE


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("divides", [False, True])
def test_matrices_in_nvfp4(divides: bool, kind: str, tmp_path: Path) -> None:
    tiny_llama(intermediate_size=160).save_pretrained(tmp_path)
    source = ModelSource.open(write_nvfp4(tmp_path, ("_proj.",), divides=divides))
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    tolerance = ROUNDED if kind == "native" else TOLERANCE
    assert difference(make_executor(kind, source), reference) <= tolerance


@pytest.mark.parametrize("kind", EXECUTORS)
def test_experts_in_nvfp4(kind: str, tmp_path: Path) -> None:
    """Each has a factor of its own."""
    make("qwen3_moe", tmp_path)
    source = ModelSource.open(write_nvfp4(tmp_path, (".experts.",), divides=False))
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    tolerance = ROUNDED if kind == "native" else TOLERANCE
    assert difference(make_executor(kind, source), reference) <= tolerance


@pytest.mark.parametrize(("model", "part"), [("llama", "_proj."), ("qwen3_moe", ".experts.")])
def test_nvfp4_by_integers(model: str, part: str, tmp_path: Path) -> None:
    if model == "llama":
        tiny_llama(intermediate_size=160).save_pretrained(tmp_path)
    else:
        make(model, tmp_path)
    source = ModelSource.open(write_nvfp4(tmp_path, (part,), divides=False))
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    run = make_executor("native", source, activation_dtype="bf16")
    assert difference(run, reference) <= INTEGERS


def test_a_factor_that_is_none_is_refused(tmp_path: Path) -> None:
    tiny_llama(intermediate_size=160).save_pretrained(tmp_path)
    path = write_nvfp4(tmp_path, ("_proj.",), divides=False)
    tensors = load_file(path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight_scale_2"
    numbers = [torch.tensor(wrong) for wrong in (0.0, -1.0, math.nan, math.inf)]
    for wrong in (*numbers, torch.ones(2), torch.ones((), dtype=torch.bfloat16)):
        save_file({**tensors, name: wrong}, path / "model.safetensors")
        with pytest.raises(WeightsError, match=rf"{name} is .*; it must be a finite number > 0"):
            make_executor("torch", ModelSource.open(path))


def test_a_factor_without_an_inverse_is_refused(tmp_path: Path) -> None:
    tiny_llama(intermediate_size=160).save_pretrained(tmp_path)
    path = write_nvfp4(tmp_path, ("_proj.",), divides=True)
    tensors = load_file(path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight_global_scale"
    save_file({**tensors, name: torch.tensor([1e-45])}, path / "model.safetensors")
    with pytest.raises(WeightsError, match=rf"{name} .* so must be its inverse"):
        make_executor("torch", ModelSource.open(path))


def test_scales_of_another_shape_are_refused(tmp_path: Path) -> None:
    write_mxfp4(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj_scales"
    tensors[name] = tensors[name][:, :, :-1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    message = r"down_proj_scales is u8 \[5, 96, 4\].* \[5, 96, 5\]"
    with pytest.raises(WeightsError, match=message):
        make_executor("torch", ModelSource.open(tmp_path))


def test_blocks_without_the_method_are_refused(tmp_path: Path) -> None:
    write_mxfp4(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"quantization_config"', '"other"'))
    with pytest.raises(WeightsError, match="experts.gate_up_proj' is missing"):
        make_executor("torch", ModelSource.open(tmp_path))
