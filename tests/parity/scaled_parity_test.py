"""Logits of int8 and fp8 checkpoints equal those of `transformers` on their values; if activations
are rounded, they are as close as that allows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.engine.model_source import as_stored
from pagemill.ops.program_text import from_text
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build
from pagemill.weights import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.families import families
from tests.families.divided import check_ranks
from tests.parity.executors import EXECUTORS, make_executor, new_batches
from tests.parity.one_request import OneRequest, difference
from tests.parity.scaled_checkpoints import SCHEMES, write_scaled, write_scaled_experts
from tests.parity.tiny_models import make, tiny_llama

# Tolerances, relative to the largest logit. Both sides compute in f32 with the same weights, in
# different orders; see tests/families/families_test.py.
EXACT = 1e-4
# Each of some 20 products in a row rounds its x: in bf16 by 2^-9 of an element at most, half of
# that typically, and errors add up like the root of their number; int8 by 1/254 of a row's largest,
# which is some 3 times its typical element. A wrong scale or order moves logits by half their size.
ROUNDED = {"bf16": 0.02, "int8": 0.08}


def _checkpoint(directory: Path, name: str) -> PreTrainedModel:
    return write_scaled(tiny_llama(attention_bias=True), directory, SCHEMES[name])


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", SCHEMES)
def test_prompt_and_decode(name: str, kind: str, tmp_path: Path) -> None:
    reference = _checkpoint(tmp_path, name)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= EXACT


def test_scales_of_groups_are_used_in_a_file(tmp_path: Path) -> None:
    """MXFP8's, which the checkpoint has as bytes."""
    request = OneRequest(_checkpoint(tmp_path / "model", "mxfp8"))
    opened = as_stored(ModelSource.open(tmp_path / "model"), tmp_path)
    (file,) = (tmp_path / "quantized").iterdir()
    # Ranks use those of their rows; of columns, those of down_proj, a program has copies.
    for shard, count in ((Shard(), 7), (Shard(1, 2), 6)):
        built = build(opened.source, BuildOptions(shard=shard))
        program = from_text(built.program_text)
        used = [entry for entry in program.weights if program.files[entry.file] == str(file)]
        assert {entry.dtype for entry in used} == {"f32"} and len(used) == 3 * count
    check_ranks(
        opened.source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / EXACT,
        partly=True,  # there is a note, of activations
    )


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("name", SCHEMES)
def test_rounded_activations(name: str, precision: str, tmp_path: Path) -> None:
    reference = _checkpoint(tmp_path, name)
    run = make_executor("native", ModelSource.open(tmp_path), activation_dtype=precision)
    # A W8A8 checkpoint was made for int8 activations: they need not be requested.
    rounded = "int8" if SCHEMES[name].dtype == "i8" else "bf16"
    assert difference(run, reference) <= ROUNDED[rounded]


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", ["w8a8", "fp8-channel", "fp8-block", "mxfp8"])
def test_experts_are_stacks(name: str, kind: str, tmp_path: Path) -> None:
    """Values with values, scales with scales."""
    make("qwen3_moe", tmp_path)
    write_scaled_experts(tmp_path, SCHEMES[name])
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    source = ModelSource.open(tmp_path / "scaled")
    assert difference(make_executor(kind, source), reference) <= EXACT
    program = from_text(build(source, BuildOptions()).program_text)
    stacks = [entry for entry in program.quantized if len(entry.shape) == 3]
    assert {entry.dtype for entry in stacks} == {SCHEMES[name].dtype}
    stacked = {stack.name for stack in program.stacks}
    assert stacks and all(set(entry.parts) - {None} <= stacked for entry in stacks)


def _with_scaled_heads(directory: Path, name: str) -> PreTrainedModel:
    """Without experts, of which rounding might choose others."""
    families.make("deepseek_v3", directory, changes={"first_k_dense_replace": 4})
    write_scaled_experts(directory, SCHEMES[name], ".kv_b_proj.")
    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", ["w8a8", "fp8-tensor", "fp8-block"])
def test_matrices_of_heads(name: str, kind: str, tmp_path: Path) -> None:
    """Of latent attention: heads do not begin where blocks do."""
    reference = _with_scaled_heads(tmp_path, name)
    run = make_executor(kind, ModelSource.open(tmp_path / "scaled"))
    rounds = kind == "native"  # to bf16
    assert difference(run, reference) <= (ROUNDED["bf16"] if rounds else EXACT)


def test_ranks_have_their_heads(tmp_path: Path) -> None:
    request = OneRequest(_with_scaled_heads(tmp_path, "fp8-block"))
    check_ranks(
        ModelSource.open(tmp_path / "scaled"),
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / ROUNDED["bf16"],
        partly=True,  # there is a note, of rounding
    )


def test_products_of_one_value_are_one_op(tmp_path: Path) -> None:
    _checkpoint(tmp_path, "w8a8-tensor")
    program = from_text(build(ModelSource.open(tmp_path), BuildOptions()).program_text)
    counts = [len(op.outputs) for op in program.ops if op.op == "linear"]
    assert counts == [3, 1, 2, 1] * 3 + [1]


def _change(directory: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors.pop(name)
    if tensor is not None:
        tensors[name] = tensor
    save_file(tensors, directory / "model.safetensors")


def _run_over_fp8_cache(directory: Path) -> npt.NDArray[np.float32]:
    """Logits of a prompt and of the token after it."""
    run = make_executor("native", ModelSource.open(directory), kv_cache_dtype="fp8")
    batches = new_batches(run)
    tokens = list(range(5, 55))
    prompt = run(batches.step({0: tokens[:-1]}, all_logits=True))["logits"]
    return np.concatenate([prompt, run(batches.step({0: tokens[-1:]}))["logits"]])


@torch.no_grad()
def test_fp8_cache_with_scales_of_the_checkpoint(tmp_path: Path) -> None:
    """Keys and values 4096 times as large, which scales take back before they are stored."""
    model = tiny_llama()
    model.save_pretrained(tmp_path / "small")
    scales = {}
    for i, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        attention.k_proj.weight.mul_(4096)
        attention.v_proj.weight.mul_(4096)
        attention.q_proj.weight.div_(4096)
        attention.o_proj.weight.div_(4096)
        for name in ("k_scale", "v_scale"):
            scales[f"model.layers.{i}.self_attn.{name}"] = torch.tensor(4096.0)
    model.save_pretrained(tmp_path / "large")
    expected = _run_over_fp8_cache(tmp_path / "small")
    saturated = _run_over_fp8_cache(tmp_path / "large")
    largest = np.abs(expected).max()
    assert np.abs(saturated - expected).max() > 0.1 * largest
    file = tmp_path / "large" / "model.safetensors"
    save_file(load_file(file) | scales, file)
    # Powers of two: every rounding is the same, except that of scores in the softmax.
    assert np.abs(_run_over_fp8_cache(tmp_path / "large") - expected).max() <= EXACT * largest


MODULE = "model.layers.1.mlp.up_proj"


def test_missing_scales_are_refused(tmp_path: Path) -> None:
    _checkpoint(tmp_path, "w8a8")
    _change(tmp_path, f"{MODULE}.weight_scale", None)
    with pytest.raises(WeightsError, match=rf"{MODULE}.weight has no scales; it needs one of"):
        build(ModelSource.open(tmp_path), BuildOptions(rewrite=False))


def test_scales_of_another_shape_are_refused(tmp_path: Path) -> None:
    _checkpoint(tmp_path, "fp8-block")
    _change(tmp_path, f"{MODULE}.weight_scale_inv", torch.ones(4, 3))
    message = r"f32 \[4, 3\]; it must be f32, bf16, f16 or u8 \[5, 2\]"
    with pytest.raises(WeightsError, match=message):
        build(ModelSource.open(tmp_path), BuildOptions(rewrite=False))


@pytest.mark.parametrize("name", ["model.norm.weight", "model.embed_tokens.weight"])
def test_only_linear_layers_have_scales(name: str, tmp_path: Path) -> None:
    _checkpoint(tmp_path, "w8a8")
    shape = load_file(tmp_path / "model.safetensors")[name].shape
    _change(tmp_path, name, torch.ones(shape, dtype=torch.int8))
    with pytest.raises(WeightsError, match=f"{name} is stored as i8, .* for linear layers only"):
        build(ModelSource.open(tmp_path), BuildOptions(rewrite=False))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (None, "q_proj.weight is stored as i8, .*q_proj is unquantized; correct its"),
        ({"quant_method": "fp8"}, r"q_proj is fp8 \(f8_e4m3 with scales\); correct its"),
    ],
)
def test_integers_that_the_configuration_does_not_know_are_refused(
    section: object, message: str, tmp_path: Path
) -> None:
    _checkpoint(tmp_path, "w8a8")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": section}))
    with pytest.raises(WeightsError, match=message):
        build(ModelSource.open(tmp_path), BuildOptions(rewrite=False))


def test_a_module_that_is_listed_as_not_quantized_must_not_be(tmp_path: Path) -> None:
    _checkpoint(tmp_path, "w8a8")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["ignore"] = ["re:.*up_proj"]
    path.write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="up_proj.weight is stored as i8, but .* unquantized"):
        build(ModelSource.open(tmp_path), BuildOptions(rewrite=False))
