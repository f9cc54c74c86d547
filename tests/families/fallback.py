"""Tiny models of architectures that run by the fallback to `transformers` only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_MAPPING,
    PreTrainedModel,
)

from tests.families.family import BY_LAYER_TYPE, SHARED_EXPERT, SIZES, SLIDING, WINDOW, rope

_HEADS = {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 96, "head_dim": 16}
_DECODER = {"is_decoder": True, "num_key_value_heads": 6}
DECODERS: Mapping[str, Mapping[str, Any]] = {
    "aria_text": {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
    "bert": _DECODER,
    "bert-generation": _DECODER,
    "bitnet": _HEADS,
    "camembert": _DECODER,
    "cohere_compass_text": {},
    "ctrl": {"n_embd": 96, "n_layer": 3, "n_head": 6, "dff": 136, "n_positions": 4096},
    "data2vec-text": _DECODER,
    "electra": _DECODER,
    "ernie": _DECODER,
    "gemma4_unified_text": {},
    "kolibri1": {"num_local_experts": 4, "num_experts_per_tok": 2, "n_routed_experts": 4, "num_experts": 4, "moe_intermediate_size": 24},
    "laguna": SHARED_EXPERT | {"num_attention_heads_per_layer": [6] * 4},
    "minimax_m3_vl_text": {},
    "modernbert-decoder": _HEADS,
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "roberta": _DECODER,
    "roberta-prelayernorm": _DECODER,
    "roc_bert": _DECODER,
}
ENCODERS: Mapping[str, Mapping[str, Any]] = {}
