"""Adapters of random weights for SmolLM2-135M, written without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HIDDEN, LAYERS, RANK = 576, 30, 2


def write_adapter(folder: Path, size: float, seed: int = 0) -> Path:
    """An adapter of SmolLM2-135M's output projections, whose matrices are about `size`."""
    random = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        for end, shape in (("A", (RANK, HIDDEN)), ("B", (HIDDEN, RANK))):
            matrix = size * random.standard_normal(shape, np.float32)
            tensors[f"{name}.lora_{end}.weight"] = matrix
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
