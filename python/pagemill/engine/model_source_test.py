"""`--load-format dummy`: a model without weights is planned and runs. `--quantization`: so is one
whose matrices are rounded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.loading import load
from pagemill.engine.model_plan import plan_model
from pagemill.engine.model_source import open_model
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "dtype": "bfloat16",
}
_LAYER = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128 + 2 * 64


def _config(directory: Path, **changes: object) -> EngineConfig:
    (directory / "config.json").write_text(json.dumps(CONFIG | changes))
    cache = str(directory / "cache")
    options = {"model": str(directory), "load_format": "dummy", "cache_dir": cache}
    return build(EngineConfig, options | {"pack_cache": False})


def _tokens(config: EngineConfig) -> list[int]:
    core = load(config).core
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    core.engine.submit(1, np.arange(3, 40, dtype=np.int32), sampling)
    tokens: list[int] = []
    while len(tokens) < 12:
        for output in core.engine.wait(30):
            assert not output.error_message
            tokens += output.new_token_ids
    core.engine.shutdown()
    return tokens


def test_a_plan_writes_no_weights(tmp_path: Path):
    config = _config(tmp_path)
    plan = plan_model(config)
    # Matrices are bf16; norms are f32 in the program, which also holds 16 rotary frequencies.
    matrices = 2 * (2 * 512 * 64 + 2 * (_LAYER - 2 * 64))
    assert matrices <= plan.weights <= 2 * matrices + 4096
    (written,) = (tmp_path / "cache/dummy").iterdir()
    assert written.stat().st_blocks * 512 < 2**16


def test_the_same_tokens_at_each_start(tmp_path: Path):
    config = _config(tmp_path)
    first = _tokens(config)
    assert len(set(first)) > 1
    for file in (tmp_path / "cache/dummy").iterdir():
        file.unlink()
    assert _tokens(config) == first


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, {}, "quantization_config"),
        ({}, {"model": None}, "a directory with a config.json"),
        ({}, {"model": "owner/name"}, "a directory with a config.json"),
    ],
)
def test_what_has_no_dummy_weights(
    tmp_path: Path, changes: dict[str, object], options: dict[str, object], message: str
):
    _config(tmp_path, **changes)
    flat = {"model": str(tmp_path), "load_format": "dummy"} | options
    with pytest.raises(ConfigError, match=message):
        plan_model(build(EngineConfig, {key: v for key, v in flat.items() if v is not None}))


def test_a_configuration_without_architectures(tmp_path: Path):
    """Its model_type names one; else the operator must."""
    unnamed = {"architectures": None}
    assert plan_model(_config(tmp_path, **unnamed)).architecture == "LlamaForCausalLM"
    with pytest.raises(ModelConfigError, match="name one by --hf-overrides"):
        plan_model(_config(tmp_path, model_type=None, **unnamed))


def test_what_the_operator_overrides(tmp_path: Path):
    whole = plan_model(_config(tmp_path)).weights
    overrides = {"architectures": ["InternLM3ForCausalLM"], "num_hidden_layers": 1}
    options = {"model": str(tmp_path), "load_format": "dummy", "cache_dir": str(tmp_path / "cache")}
    plan = plan_model(build(EngineConfig, options | {"hf_overrides": overrides}))
    assert plan.architecture == "InternLM3ForCausalLM"
    assert whole - plan.weights >= 2 * (_LAYER - 2 * 64)
    # Of what it takes away, nothing is left.
    _config(tmp_path, quantization_config={"quant_method": "gptq"})
    plan_model(build(EngineConfig, options | {"hf_overrides": {"quantization_config": None}}))


def _quantized(config: EngineConfig, name: str, *ignored: str) -> EngineConfig:
    listed = {"ignore": list(ignored)} if ignored else {}
    model = replace(config.model, quantization=name, quantization_config=listed)
    return replace(config, model=model)


# CPUs pack int8 as q8_0 and int4 as q4_1.
@pytest.mark.parametrize(("name", "bits"), [("fp8", 8), ("int8", 8.5), ("int4", 5)])
def test_a_plan_of_quantized_weights(tmp_path: Path, name: str, bits: float):
    config = _config(tmp_path)
    saved = plan_model(config).weights - plan_model(_quantized(config, name)).weights
    assert saved == pytest.approx(2 * (_LAYER - 2 * 64) * (16 - bits) / 8, rel=0.02)
    (written,) = (tmp_path / "cache/quantized").iterdir()
    assert written.stat().st_blocks * 512 < 2**16


def test_a_plan_of_weights_that_stay_as_they_are(tmp_path: Path):
    config = _config(tmp_path)
    plans = (config, _quantized(config, "fp8", "down_proj"), _quantized(config, "fp8"))
    whole, partly, quantized = (plan_model(each).weights for each in plans)
    down = 2 * 64 * 128
    assert partly - quantized == pytest.approx(down, rel=0.02)
    assert whole - partly == pytest.approx(2 * (_LAYER - 2 * 64) - down, rel=0.02)


def test_random_weights_that_are_quantized(tmp_path: Path):
    config = _config(tmp_path)
    assert _tokens(_quantized(config, "int4")) != _tokens(config)


def _checkpoint(directory: Path, **changes: object) -> EngineConfig:
    """Random weights as a checkpoint of its own."""
    plan_model(_config(directory))
    (file,) = (directory / "cache/dummy").iterdir()
    file.rename(directory / "model.safetensors")
    _config(directory, **changes)
    return build(EngineConfig, {"model": str(directory), "cache_dir": str(directory / "cache")})


@pytest.mark.parametrize(
    ("stated", "wanted", "message"),
    [
        ({"quant_method": "gptq"}, "fp8", r"quantized already \(gptq\); leave it out"),
        ({}, "fp8", "it does not say how"),
        (None, "awq", "not quantized; it can be quantized to fp8, fp8_per_block, int8, "),
        (None, "int7", "int7 is not known; known are fp8, fp8_per_block, int8, "),
        (None, "experts_int8", "no matrix of experts can be quantized to int8"),
        (None, "moe_wna16", "not quantized; it can be quantized to fp8, fp8_per_block, int8, "),
        ({"quant_method": "fp8"}, "moe_wna16", r"quantized already \(fp8\); leave it out"),
    ],
)
def test_what_cannot_be_quantized(
    tmp_path: Path, stated: dict[str, str] | None, wanted: str, message: str
):
    config = _checkpoint(tmp_path, quantization_config=stated)
    with pytest.raises((ConfigError, WeightsError), match=message):
        open_model(_quantized(config, wanted).model, BuildOptions())


@pytest.mark.parametrize("options", [BuildOptions(implementation="transformers"), BuildOptions()])
def test_only_native_models_are_quantized(tmp_path: Path, options: BuildOptions):
    config = _checkpoint(tmp_path, architectures=["NoSuchModel"])
    with pytest.raises(ConfigError, match="--quantization fp8 needs a model with native support"):
        open_model(_quantized(config, "fp8").model, options)


@pytest.mark.parametrize(
    ("method", "name"), [("fp8", "fp8"), ("gptq", "moe_wna16"), ("awq", "awq_marlin")]
)
def test_a_quantized_checkpoint_may_be_given_its_method(tmp_path: Path, method: str, name: str):
    """By its own name, or by another system's."""
    section = {"quant_method": method, "bits": 4, "group_size": 32}
    config = _checkpoint(tmp_path, quantization_config=section)
    opened = open_model(_quantized(config, name).model, BuildOptions())
    assert opened.at_load is None
    assert {tensor.file for tensor in opened.source.tensors} == {f"{tmp_path}/model.safetensors"}


@pytest.mark.parametrize(
    "pattern", ["re:(", "re:(?i)down_proj", r"re:(a)\1", "re:" + "a{999}" * 20]
)
def test_patterns_that_are_not_supported(tmp_path: Path, pattern: str):
    config = _checkpoint(tmp_path)
    with pytest.raises(ConfigError, match="^--quantization-config: the pattern.*supported: "):
        open_model(_quantized(config, "fp8", pattern).model, BuildOptions())


def test_targets_have_formats_that_are_known(tmp_path: Path):
    config = _quantized(_checkpoint(tmp_path), "fp8")
    targets = {"targets": {"down_proj": "int7"}}
    model = replace(config.model, quantization_config=targets)
    with pytest.raises(ConfigError, match="the format 'int7' of the target 'down_proj' is not"):
        open_model(model, BuildOptions())


def test_a_plan_of_modules_of_another_format(tmp_path: Path):
    config = _quantized(_config(tmp_path), "fp8")
    model = replace(config.model, quantization_config={"targets": {"down_proj": "int4"}})
    saved = plan_model(config).weights - plan_model(replace(config, model=model)).weights
    assert saved == pytest.approx(2 * 64 * 128 * 3 / 8, rel=0.05)  # CPUs pack int4 as q4_1


def test_a_list_of_modules_is_for_quantization_at_load(tmp_path: Path):
    config = _checkpoint(tmp_path, quantization_config={"quant_method": "fp8"})
    with pytest.raises(ConfigError, match=r"quantized already \(fp8\), so that nothing"):
        open_model(_quantized(config, "fp8", "down_proj").model, BuildOptions())


def test_gguf_files_have_their_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "model.gguf"
    path.touch()
    gguf = ModelSource("gguf", path, {}, None, None, {})
    monkeypatch.setattr(ModelSource, "open", lambda *_: gguf)
    config = build(EngineConfig, {"model": str(path)})
    assert open_model(_quantized(config, "gguf").model, BuildOptions()) == (gguf, gguf, None)
    with pytest.raises(ConfigError, match=r"quantized already \(gguf\); leave it out"):
        open_model(_quantized(config, "int8").model, BuildOptions())
