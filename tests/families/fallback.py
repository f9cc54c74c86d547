"""Tiny models of architectures that run by the fallback to `transformers` only: a row each, by
model type, with the fields of its configuration that are not those of `SIZES`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedModel,
)

from tests.families.families import randomize
from tests.families.family import SIZES, SLIDING

_DECODER = {"is_decoder": True, "num_key_value_heads": 6, "head_dim": 16}
DECODERS: Mapping[str, Mapping[str, Any]] = {
    "bert-generation": _DECODER,
    "ctrl": {"n_embd": 96, "n_layer": 3, "n_head": 6, "dff": 136, "n_positions": 4096},
    "data2vec-text": _DECODER,
    "electra": _DECODER,
    "ernie": _DECODER,
    "gemma4_unified_text": {"global_head_dim": 32, "num_global_key_value_heads": 2} | SLIDING,
    "moshi": {"num_key_value_heads": 2, "head_dim": 16, "ffn_dim": 136},
    "roberta-prelayernorm": _DECODER,
    "roc_bert": _DECODER,
}
ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "bert-generation": {"head_dim": 16},
    "roc_bert": {"head_dim": 16},
}


def make(model_type: str, directory: Path, *, encoder: bool = False) -> PreTrainedModel:
    """Saves a checkpoint of the row `model_type` in f32; returns its reference."""
    torch.manual_seed(0)
    changes = (ENCODERS if encoder else DECODERS)[model_type]
    kind = CONFIG_MAPPING[model_type]
    known = kind().to_dict().keys()
    config = kind(**{key: value for key, value in (SIZES | changes).items() if key in known})
    auto = AutoModel if encoder else AutoModelForCausalLM
    made: object = auto.from_config(config, attn_implementation="eager")
    assert isinstance(made, PreTrainedModel)
    model = made.eval()
    randomize(model)
    model.save_pretrained(directory)
    return model
