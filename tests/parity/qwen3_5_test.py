"""The language models of Qwen3.5's checkpoints with images, whose configuration has no tower, equal
`transformers`. Images are in tests/media."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pagemill.runner.build import BuildOptions
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import (
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
)

from tests.families.divided import check_ranks, check_stages
from tests.parity.executors import make_executor
from tests.parity.one_request import Array, OneRequest, difference

# As in tests/families: both sides compute in f32, and add up rows in different orders.
TOLERANCE = 1e-4
_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": 96,
    "num_position_embeddings": 16,
}
_TEXT = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 40,
    "max_position_embeddings": 4096,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [2, 2, 1],
    },
}
_EXPERTS = {
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 5,
    "num_experts_per_tok": 2,
}


def _dense(*, tied: bool) -> PreTrainedModel:
    text = {**_TEXT, "tie_word_embeddings": tied}
    config = Qwen3_5Config(text_config=text, vision_config=_VISION, tie_word_embeddings=tied)
    return Qwen3_5ForConditionalGeneration(config)


def _with_experts() -> PreTrainedModel:
    text = {key: value for key, value in _TEXT.items() if key != "intermediate_size"}
    config = Qwen3_5MoeConfig(text_config={**text, **_EXPERTS}, vision_config=_VISION)
    return Qwen3_5MoeForConditionalGeneration(config)


def _stack_experts(path: Path) -> None:
    """Writes the experts of each layer as two tensors, as published checkpoints have them."""
    tensors = load_file(path)
    modules = ("gate_proj", "up_proj", "down_proj")
    prefixes = {name.split(".experts.")[0] for name in tensors if ".experts." in name}
    assert len(prefixes) == 2
    for prefix in prefixes:
        gate, up, down = (
            torch.stack([tensors.pop(f"{prefix}.experts.{i}.{name}.weight") for i in range(5)])
            for name in modules
        )
        tensors[f"{prefix}.experts.gate_up_proj"] = torch.cat([gate, up], 1)
        tensors[f"{prefix}.experts.down_proj"] = down
    save_file(tensors, path)


_NAMES = ["untied", "tied", "experts", "experts in stacks"]


def _save(name: str, path: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    model = _with_experts() if name.startswith("experts") else _dense(tied=name == "tied")
    model = model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            small = parameter.ndim == 1
            parameter.copy_(
                parameter + 0.3 * noise if small else noise / parameter.shape[-1] ** 0.5
            )
    model.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    del config["vision_config"]
    (path / "config.json").write_text(json.dumps(config))
    if name == "experts in stacks":
        _stack_experts(path / "model.safetensors")
    model.config.vocab_size = _TEXT["vocab_size"]
    return model


@pytest.mark.parametrize("kind", ["native", "torch"])
@pytest.mark.parametrize("name", _NAMES)
def test_text(name: str, kind: str, tmp_path: Path) -> None:
    model = _save(name, tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), model) <= TOLERANCE


@pytest.mark.parametrize("name", _NAMES)
def test_ranks_and_stages(name: str, tmp_path: Path) -> None:
    request = OneRequest(_save(name, tmp_path))

    def distance(logits: Array) -> float:
        return request.difference(logits) / TOLERANCE

    source = ModelSource.open(tmp_path)
    check_ranks(source, BuildOptions(), request.steps, distance)
    check_stages(source, BuildOptions(), request.steps, distance)
