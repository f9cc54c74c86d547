"""Persimmon: layer norms, also of each head of q and k, rotary pairs on a part of each head,
squared ReLU without gates.

Weights: `model.layers.<i>.{input_layernorm, self_attn.{query_key_value,q_layernorm,k_layernorm,
dense}, post_attention_layernorm, mlp.{dense_h_to_4h,dense_4h_to_h}}`, `model.{embed_tokens,
final_layernorm}`, `lm_head`; query_key_value has for each head the rows of q, k and v; all of the
layers have biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed, activation, flag
from pagemill.models.decoder import Decoder, DecoderNames


class PersimmonModel(Decoder):
    """One Persimmon model."""

    names = DecoderNames(norm="model.final_layernorm")

    def __init__(self, config: Config) -> None:
        config = Renamed(config, {}, {"partial_rotary_factor": 0.5})
        super().__init__(config, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        names, eps = ("q_layernorm", "k_layernorm"), self.sizes.norm_eps
        has_norms = flag(config, "qk_layernorm", True)
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",),
            by_head=True,
            output="dense",
            bias=True,
            output_bias=True,
            qk_norm=QkNorm(eps, names=names, mean=True, bias=True) if has_norms else None,
        )
        self.mlp_parts = MlpParts(
            up=("dense_h_to_4h",), down="dense_4h_to_h", gated=False, bias=True
        )
        self.activation = activation(config, "hidden_act", "relu2")
