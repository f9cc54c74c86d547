"""The language models of checkpoints with images equal `transformers` on text: those without a row
in tests/families, where references are language models alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pagemill.runner.build import BuildOptions
from pagemill.weights.source import ModelSource
from transformers import (
    MiniCPMV4_7Config,
    MiniCPMV4_7ForConditionalGeneration,
    Ovis2Config,
    Ovis2ForConditionalGeneration,
    PreTrainedModel,
    Step3p7Config,
    Step3p7ForConditionalGeneration,
)

from tests.families.divided import check_ranks, check_stages
from tests.families.families import randomize
from tests.parity.executors import make_executor
from tests.parity.one_request import Array, OneRequest, difference

# As in tests/families: both sides compute in f32, and add up rows in different orders.
TOLERANCE = 1e-4
_TEXT = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 40,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
}


_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}


def _step3p7() -> PreTrainedModel:
    text: dict[str, Any] = {
        **_TEXT,
        "num_sliding_attention_heads": 4,
        "moe_intermediate_size": 24,
        "share_expert_dim": 40,
        "n_routed_experts": 5,
        "num_experts_per_tok": 2,
        "swiglu_limits": [0.0, 0.4],
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "partial_rotary_factor": 0.5,
            },
        },
    }
    vision = {"width": 32, "layers": 1, "heads": 2, "patch_size": 4, "image_size": 16}
    config = Step3p7Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    return Step3p7ForConditionalGeneration(config)


def _minicpm_v4_7() -> PreTrainedModel:
    text: dict[str, Any] = {
        **_TEXT,
        "model_type": "qwen3_5_text",
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 24,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
    }
    config = MiniCPMV4_7Config(text_config=text, vision_config=_VISION, insert_layer_id=0)
    return MiniCPMV4_7ForConditionalGeneration(config)


def _ovis2() -> PreTrainedModel:
    text: dict[str, Any] = {**_TEXT, "model_type": "qwen2", "head_dim": 16}
    vision = {**_VISION, "vocab_size": 40, "num_visual_indicator_tokens": 5}
    sizes = {key: _TEXT[key] for key in ("vocab_size", "hidden_size")}
    config = Ovis2Config(text_config=text, vision_config=vision, **sizes)
    return Ovis2ForConditionalGeneration(config)


def _save(make: Callable[[], PreTrainedModel], path: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    model = make().eval()
    randomize(model)
    model.save_pretrained(path)
    model.config.vocab_size = _TEXT["vocab_size"]
    return model


_MAKERS = [_minicpm_v4_7, _ovis2, _step3p7]


@pytest.mark.parametrize("kind", ["native", "torch"])
@pytest.mark.parametrize("make", _MAKERS)
def test_text(make: Callable[[], PreTrainedModel], kind: str, tmp_path: Path) -> None:
    model = _save(make, tmp_path)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), model) <= TOLERANCE


@pytest.mark.parametrize("make", _MAKERS)
def test_ranks_and_stages(make: Callable[[], PreTrainedModel], tmp_path: Path) -> None:
    request = OneRequest(_save(make, tmp_path))

    def distance(logits: Array) -> float:
        return request.difference(logits) / TOLERANCE

    source = ModelSource.open(tmp_path)
    check_ranks(source, BuildOptions(), request.steps, distance)
    check_stages(source, BuildOptions(), request.steps, distance)
