"""Logits of models that are quantized at load equal those of `transformers` on the values that the
matrices are rounded to; and the engine runs and replaces such models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.config import EngineConfig, build
from pagemill.engine.loading import LoadedModel, load, update_weights
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.runner.build import BuildOptions
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.families.divided import check_ranks
from tests.families.rounded_matrices import rounded, write_values
from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import OneRequest, difference
from tests.parity.tiny_models import make

# See packed_parity_test: minima of q4_1 are rounded to f16 by the native executor's fast kernels.
EXACT, ROUNDED = 1e-4, 5e-3


def _reference(model: Path, name: str) -> PreTrainedModel:
    """Of the values that matrices of `model` have in the format `name`."""
    values = model.parent / "values"
    values.mkdir()
    write_values(model, rounded(model, name, model.parent), values)
    return AutoModelForCausalLM.from_pretrained(
        values, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def _model(directory: Path, family: str) -> Path:
    (directory / "model").mkdir()
    make(family, directory / "model", "bf16")
    return directory / "model"


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
@pytest.mark.parametrize("name", FORMATS)
def test_prompt_and_decode(name: str, family: str, tmp_path: Path) -> None:
    model = _model(tmp_path, family)
    reference = _reference(model, name)
    for kind in EXECUTORS:
        run = make_executor(kind, rounded(model, name, tmp_path))
        tolerance = ROUNDED if (kind, name) == ("native", "int4") else EXACT
        assert difference(run, reference) <= tolerance, kind


@pytest.mark.parametrize("name", ["fp8", "int8", "int4"])
def test_ranks_divide_matrices_and_experts(name: str, tmp_path: Path) -> None:
    model = _model(tmp_path, "qwen3_moe")
    request = OneRequest(_reference(model, name))
    tolerance = ROUNDED if name == "int4" else EXACT
    check_ranks(
        rounded(model, name, tmp_path),
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / tolerance,
        partly=name != "fp8",  # two ranks would cut groups of 32 columns
    )


def _config(model: Path, **options: object) -> EngineConfig:
    flat = {"model": str(model), "cache_dir": str(model.parent / "cache"), "max_model_len": 256}
    return build(EngineConfig, flat | {"pack_cache": False} | options)


def _tokens(loaded: LoadedModel) -> list[int]:
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
    engine, tokens = loaded.core.engine, list[int]()
    engine.submit(1, np.arange(3, 50, dtype=np.int32), sampling)
    while len(tokens) < 16:
        for output in engine.wait(30):
            assert not output.error_message
            tokens += output.new_token_ids
    return tokens


def test_new_weights_are_rounded_alike(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for seed, path in enumerate((one, two), 1):
        path.mkdir()
        make("llama", path, "bf16", seed=seed)
    expected = load(_config(two, quantization="int8"))
    loaded = load(_config(one, quantization="int8"))
    assert loaded.at_load is not None
    before = _tokens(loaded)
    update_weights(loaded.core, loaded.source, str(two), at_load=loaded.at_load)
    assert before != _tokens(loaded) == _tokens(expected)
    with pytest.raises(_native.StatusError, match="proj.weight"):
        update_weights(loaded.core, loaded.source, str(one))
    for each in (loaded, expected):
        each.core.engine.shutdown()


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
