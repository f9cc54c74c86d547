"""`--load-format dummy`: a model without weights is planned and runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.loading import load
from pagemill.engine.model_plan import plan_model
from pagemill.models.base import ModelConfigError

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
