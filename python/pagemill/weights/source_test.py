"""Keys of a configuration that come from elsewhere when a model is opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}


def test_overrides_are_merged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    overrides = {
        "eos_token_id": [7, 5],
        "rope_parameters": {"rope_type": "linear", "factor": 2.0},
        "num_labels": 4,
    }
    assert ModelSource.open(tmp_path).config == CONFIG | {"eos_token_id": [2]}
    assert ModelSource.open(tmp_path, overrides).config == {
        "architectures": ["LlamaForCausalLM"],
        "eos_token_id": [5, 7],
        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
        "num_labels": 4,
    }


@pytest.mark.parametrize("part", ["text_config", "llm_config"])
def test_tokens_that_end_a_text_may_be_those_of_the_language_model(
    part: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {part: {"eos_token_id": 9}}))
    assert ModelSource.open(tmp_path, tensors=False).eos_token_ids == (2, 9)


def test_how_a_decoder_begins(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"decoder_start_token_id": 3}))
    generation = {"decoder_start_token_id": 4, "forced_bos_token_id": 0, "max_length": 20}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))

    def config(overrides: dict[str, int]) -> Mapping[str, object]:
        return ModelSource.open(tmp_path, overrides, tensors=False).config

    starts = {"decoder_start_token_id": 4, "forced_bos_token_id": 0}
    assert config({}) == CONFIG | {"eos_token_id": [2]} | starts
    assert config({"forced_bos_token_id": 7})["forced_bos_token_id"] == 7


def test_a_quantization_may_be_that_of_the_language_model(tmp_path: Path) -> None:
    inner, whole = ({"quant_method": name} for name in ("compressed-tensors", "fp8"))
    config = CONFIG | {"text_config": {"quantization_config": inner}}
    for changes, expected in (({}, inner), ({"quantization_config": whole}, whole)):
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        opened = ModelSource.open(tmp_path, tensors=False).config
        assert opened["quantization_config"] == expected


@pytest.mark.parametrize("stated", [{}, {"quantization_config": None}])
def test_a_quantization_may_lie_beside(stated: dict[str, None], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | stated))
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    opened = ModelSource.open(tmp_path, tensors=False).config
    assert opened["quantization_config"] == {"quant_method": "modelopt", **beside}
    for key in ("quantization_config", "compression_config"):
        own = CONFIG | {key: {"quant_method": "fp8"}}
        (tmp_path / "config.json").write_text(json.dumps(own))
        assert ModelSource.open(tmp_path, tensors=False).config == own | {"eos_token_id": [2]}


def test_a_placeholder_may_be_stated_by_the_tokenizer(tmp_path: Path) -> None:
    added = [{"id": 7, "content": "<img>"}, {"id": 9, "content": "<video>"}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))

    def opened(**changes: object) -> object:
        config = CONFIG | {"model_type": "internvl"} | changes
        (tmp_path / "config.json").write_text(json.dumps(config))
        return ModelSource.open(tmp_path, tensors=False).config.get("video_token_id")

    assert opened() == opened(video_token_id=None) == 9
    assert opened(video_token_id=4) == 4
    assert opened(model_type="llama") is None
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added[:1]}))
    assert opened() is None
    (tmp_path / "tokenizer.json").unlink()
    assert opened() is None


@pytest.mark.parametrize("added", [7, [7], [[]], [{"id": True, "content": "<video>"}], [{}]])
def test_a_tokenizer_that_lies_states_nothing(added: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "internvl"}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    config = ModelSource.open(tmp_path, tensors=False).config
    assert "video_token_id" not in config


@pytest.mark.parametrize(
    ("kind", "name"), [("internvl", "tokenizer.json"), ("glm4v", "preprocessor_config.json")]
)
def test_files_beside_a_configuration_are_not_trusted(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": kind}))
    for text, message in (("[" * 10**6, "nested too deep"), ("[]", "not a JSON object")):
        (tmp_path / name).write_text(text)
        with pytest.raises(WeightsError, match=message):
            ModelSource.open(tmp_path, tensors=False)
