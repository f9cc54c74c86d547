"""Nomic BERT: BERT with rotary positions, gates and no biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import GPT2_KEYS, make_rotary_table, refuse
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.trace import Tensor

_BIASES = ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")


class NomicBertModel(Encoder):
    """One Nomic BERT encoder."""

    base_prefix = "nomic_bert."
    names = EncoderNames(
        norm="emb_ln",
        layers="encoder.layers",
        qkv=("attn.Wqkv",),
        attended="attn.out_proj",
        attended_norm="norm1",
        up=("mlp.fc12", "mlp.fc11"),
        down="mlp.fc2",
        down_norm="norm2",
    )

    def __init__(self, config: Config) -> None:
        config = _renamed(config)
        super().__init__(config)
        self.bias = False
        self.gated = True
        table = make_rotary_table(config, self.sizes.head_dim)
        self.rotary = (table,) * self.sizes.layers

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)


def _renamed(config: Config) -> Mapping[str, Any]:
    """The configuration by `transformers`' keys; the first checkpoints have those of GPT-2."""
    if "n_embd" not in config:
        return config
    refuse(config, *_BIASES, "prenorm", "rotary_emb_interleaved", "num_experts")
    swiglu = config.get("activation_function") == "swiglu"
    if not swiglu or config.get("rotary_emb_fraction", 1) != 1:
        raise ModelConfigError("Nomic BERT needs activation_function swiglu, rotary_emb_fraction 1")
    names = GPT2_KEYS | {"layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base"}
    if config.get("max_trained_positions") is not None:
        names |= {"max_position_embeddings": "max_trained_positions"}
    kept = {key: config[key] for key in ("vocab_size", "type_vocab_size") if key in config}
    renamed = {key: config[name] for key, name in names.items() if name in config}
    return kept | renamed | {"hidden_act": "silu"}
