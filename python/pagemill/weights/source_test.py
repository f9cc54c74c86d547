"""Keys of a configuration that are replaced when a model is opened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

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
