"""Logits of models that are quantized at load equal those of `transformers` on the values that the
matrices are rounded to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pagemill.config import ModelConfig
from pagemill.config import build as build_config
from pagemill.engine.model_source import open_model
from pagemill.inputs.task import Task
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.families.divided import check_ranks
from tests.families.encoders import make as make_encoder
from tests.families.families import make as make_family
from tests.families.rounded_matrices import reference, rounded, write_values
from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import OneRequest, difference
from tests.parity.tiny_models import make

# See packed_parity_test: minima of q4_1 are rounded to f16 by the native executor's fast kernels.
EXACT, ROUNDED = 1e-4, 5e-3


def _model(directory: Path, family: str) -> Path:
    (directory / "model").mkdir()
    make(family, directory / "model", "bf16")
    return directory / "model"


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
@pytest.mark.parametrize("name", FORMATS)
def test_prompt_and_decode(name: str, family: str, tmp_path: Path) -> None:
    model = _model(tmp_path, family)
    source = rounded(model, name, tmp_path)
    expected = reference(model, source)
    for kind in EXECUTORS:
        tolerance = ROUNDED if (kind, name) == ("native", "int4") else EXACT
        assert difference(make_executor(kind, source), expected) <= tolerance, kind


@pytest.mark.parametrize(
    ("family", "name", "module"),
    [
        ("gpt2", "fp8", "transformer.h.1.attn.c_attn"),
        ("gpt2", "int4", "transformer.h.1.attn.c_proj"),
        ("openai_gpt", "int8_w8a8", "transformer.h.1.mlp.c_proj"),
        ("llama4", "fp8", "model.layers.1.feed_forward.experts.down_proj.0"),
        ("gpt_oss", "fp8", "model.layers.1.mlp.experts.down_proj.0"),
        ("llama4", "int8", "model.layers.1.feed_forward.experts.gate_up_proj.2"),
    ],
)
def test_matrices_that_are_stored_transposed(
    family: str, name: str, module: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    make_family(family, model)
    source = rounded(model, name, tmp_path)
    assert source.has(f"{module}.weight_scale")
    expected = reference(model, source)
    for kind in EXECUTORS:
        tolerance = ROUNDED if (kind, name) == ("native", "int4") else EXACT
        assert difference(make_executor(kind, source), expected) <= tolerance, kind


def test_ranks_divide_experts_that_were_stored_transposed(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    make_family("llama4", model)
    source = rounded(model, "fp8", tmp_path)
    request = OneRequest(reference(model, source))
    check_ranks(
        source, BuildOptions(), request.steps, lambda logits: request.difference(logits) / EXACT
    )


@pytest.mark.parametrize("whole_experts", [False, True])
@pytest.mark.parametrize("name", ["fp8", "int8", "int4"])
def test_ranks_divide_matrices_and_experts(name: str, whole_experts: bool, tmp_path: Path) -> None:
    model = _model(tmp_path, "qwen3_moe")
    source = rounded(model, name, tmp_path)
    request = OneRequest(reference(model, source))
    tolerance = ROUNDED if name == "int4" else EXACT
    check_ranks(
        source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / tolerance,
        partly=name != "fp8",  # two ranks would cut groups of 32 columns
        whole_experts=whole_experts,
    )


@pytest.mark.parametrize("family", ["kimi_linear", "nemotron_h", "qwen3_next"])
@pytest.mark.parametrize("name", ["fp8", "int8", "int4"])
def test_ranks_divide_layers_with_states(name: str, family: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    make_family(family, model)
    source = rounded(model, name, tmp_path)
    request = OneRequest(reference(model, source))
    tolerance = ROUNDED if name == "int4" else EXACT
    check_ranks(
        source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / tolerance,
        # Half of 96 columns would cut groups of 32.
        partly=family == "nemotron_h" and name != "fp8",
    )


def test_layers_that_share_values_are_divided_alike(tmp_path: Path) -> None:
    """The first layer's values are those of others: half of 96 columns would cut groups of 32 in
    all but the first layer, which is not rounded."""
    model, values = tmp_path / "model", tmp_path / "values"
    model.mkdir()
    values.mkdir()
    expected = make_family("rwkv7", model)
    source = rounded(model, "int8", tmp_path, ["layers.0"])
    write_values(model, source, values)
    expected.load_state_dict(load_file(values / "model.safetensors"))
    request = OneRequest(expected)
    check_ranks(
        source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / EXACT,
        partly=True,
    )


@pytest.mark.parametrize(
    ("family", "ignored", "stays"),
    [
        ("llama", ["layers.0"], "model.layers.0."),
        ("llama", ["re:.*q_proj"], "q_proj."),  # k and v are multiplied in the same product
        ("qwen3_moe", ["down_proj"], "down_proj."),
        ("qwen3_moe", ["re:model.layers.1.mlp.experts"], "model.layers.1.mlp.experts."),
    ],
)
@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_modules_that_stay_as_they_are(
    name: str, family: str, ignored: list[str], stays: str, tmp_path: Path
) -> None:
    model = _model(tmp_path, family)
    source = rounded(model, name, tmp_path, ignored)
    kept = {tensor.name: tensor for tensor in source.tensors if stays in tensor.name}
    assert kept == {t.name: t for t in ModelSource.open(model).tensors if stays in t.name} != {}
    expected = reference(model, source)
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), expected) <= EXACT, kind


def test_experts_alone(tmp_path: Path) -> None:
    """Shared ones, which all tokens have, are no experts that tokens choose."""
    model = tmp_path / "model"
    model.mkdir()
    make_family("qwen2_moe", model, changes={"moe_intermediate_size": 32})
    config = {"model": str(model), "quantization": "experts_int8", "cache_dir": str(tmp_path)}
    source = open_model(build_config(ModelConfig, config), BuildOptions()).source
    names = {tensor.name for tensor in source.tensors}
    kept = names & {tensor.name for tensor in ModelSource.open(model).tensors}
    packed = {name for name in names if name.endswith("weight_packed")}
    assert packed and all(".experts." in name for name in packed)
    assert not any(".experts." in name for name in kept)
    expected = reference(model, source)
    for kind in EXECUTORS:
        assert difference(make_executor(kind, source), expected) <= EXACT, kind


@pytest.mark.parametrize(
    ("family", "name", "targets"),
    [
        ("llama", "fp8", [("gate_proj", "int4"), ("re:.*[kv]_proj", "int8")]),
        ("qwen3_moe", "int8", [("experts", "int4"), ("self_attn", "fp8_per_block")]),
        ("llama4", "int4", [("experts", "fp8"), ("q_proj", "int8_w8a8")]),
    ],
)
def test_modules_of_other_formats(
    name: str, family: str, targets: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Also in products of one value, of which each matrix may have another."""
    model = tmp_path / "model"
    model.mkdir()
    make_family(family, model)
    source = rounded(model, name, tmp_path, (), targets)
    assert len(source.config["quantization_config"]["config_groups"]) == 3
    expected = reference(model, source)
    for kind in EXECUTORS:
        tolerance = ROUNDED if kind == "native" else EXACT
        assert difference(make_executor(kind, source), expected) <= tolerance, kind


def test_experts_of_a_layer_stay_together(tmp_path: Path) -> None:
    model = _model(tmp_path, "qwen3_moe")
    source = rounded(model, "fp8", tmp_path, ["experts.1"])
    with pytest.raises(WeightsError, match="experts of a layer must have one type"):
        build(source, BuildOptions())


def test_heads_stay(tmp_path: Path) -> None:
    """What files are for may follow from their heads, whatever they are loaded for."""
    make("bert", tmp_path)
    path = tmp_path / "model.safetensors"
    width = ModelSource.open(tmp_path).config["hidden_size"]
    head = {"linear.weight": torch.randn(32, width)}  # ColBERT's
    save_file(load_file(path) | head, path, metadata={"format": "pt"})
    quantized = rounded(tmp_path, "fp8", tmp_path / "cache")
    assert quantized.tensor("linear.weight") == ModelSource.open(tmp_path).tensor("linear.weight")
    assert any(tensor.dtype == "f8_e4m3" for tensor in quantized.tensors)


def test_matrices_that_are_read_as_values_stay(tmp_path: Path) -> None:
    """DeBERTa 3 projects embeddings of distances by those of queries and keys."""
    make_encoder("deberta_v3", Task.TOKEN_EMBED, tmp_path)
    quantized = rounded(tmp_path, "int8", tmp_path / "cache")
    names = {tensor.name for tensor in quantized.tensors}
    layer = "encoder.layer.1.attention.self"
    assert {f"{layer}.query_proj.weight", f"{layer}.key_proj.weight"} <= names
    assert f"{layer}.value_proj.weight_packed" in names
    build(quantized, BuildOptions(task=Task.TOKEN_EMBED))
