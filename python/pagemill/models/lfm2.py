"""LFM2 and its form with experts: Llama with gated short convolutions in place of most attentions,
and norms on q and k.

Weights: `model.layers.<i>.{operator_norm, ffn_norm}`, either `self_attn.{q,k,v,out}_proj` and
`self_attn.{q,k}_layernorm` or `conv.*` (`layers.short_conv`), and `feed_forward.{w1,w3,w2}`, or
`feed_forward.{gate, expert_bias, experts.<i>.{w1,w3,w2}}` behind the first layers of a model with
experts; `model.{embed_tokens,embedding_norm}`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.layers.short_conv import ShortConv, short_conv
from pagemill.models.base import Config
from pagemill.models.config_keys import (
    FULL,
    Defaults,
    Renamed,
    flag,
    layer_numbers,
    layer_types,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing, sparse_behind
from pagemill.ops import ActivationKind, Scoring
from pagemill.ops.trace import Tensor

_CONV = "conv"
# Names of older checkpoints, which count if they are there.
_OLDER = {"intermediate_size": "block_ff_dim", "tie_word_embeddings": "tie_embedding"}


class Lfm2Model(Decoder):
    """One LFM2 model."""

    names = DecoderNames(
        norm="model.embedding_norm",
        attention_norm="operator_norm",
        feed_forward_norm="ffn_norm",
        feed_forward="feed_forward",
    )

    def __init__(self, config: Config) -> None:
        older = {key: old for key, old in _OLDER.items() if config.get(old) is not None}
        config = Defaults(Renamed(config, older), {"rope_theta": 1e6})
        super().__init__(config, tied_by_default=True, eps=("norm_eps", 1e-5))
        qk_norm = QkNorm(self.sizes.norm_eps, names=("q_layernorm", "k_layernorm"))
        self.attention_parts = AttentionParts(output="out_proj", qk_norm=qk_norm)
        self.mlp_parts = MlpParts(up=("w1", "w3"), down="w2")
        self._types = _read_types(config, self.sizes.layers)
        self._conv = ShortConv(
            taps=positive_int(config, "conv_L_cache", 3), bias=flag(config, "conv_bias", False)
        )
        self.experts = _read_experts(config)
        self.is_sparse = sparse_behind(config, self.sizes.layers, dense=2, key="num_dense_layers")
        if self.experts is None:
            size = _adjusted(config, self.sizes.intermediate_size)
            self.sizes = replace(self.sizes, intermediate_size=size)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if self._types[layer] == FULL:
            return super().attention(weights, layer, x, rotary)
        return short_conv(weights, f"{self.prefix(layer)}.conv", x, self._conv, layer)


def _read_types(config: Config, layers: int) -> tuple[str, ...]:
    types = layer_types(config, layers, (FULL, _CONV))
    if types is not None:
        return types
    if config.get("full_attn_idxs") is None:
        return (FULL,) * layers
    full = layer_numbers(config, "full_attn_idxs")
    return tuple(FULL if layer in full else _CONV for layer in range(layers))


def _adjusted(config: Config, size: int) -> int:
    """Two thirds of the stated intermediate size, times a factor and rounded up, if the
    configuration says so."""
    if not flag(config, "block_auto_adjust_ff_dim", True):
        return size
    factor = number(config, "block_ffn_dim_multiplier", 1.0, least=1e-3)
    multiple = positive_int(config, "block_multiple_of", 256)
    return -(-int(factor * int(2 * size / 3)) // multiple) * multiple


def _read_experts(config: Config) -> Experts | None:
    if config.get("num_experts") is None:
        return None
    count = positive_int(config, "num_experts")
    renormalize = flag(config, "norm_topk_prob", True)
    routing = replace(
        read_routing(config, count, 4, renormalize=renormalize),
        scoring=Scoring.SIGMOID,
        scale=number(config, "routed_scaling_factor", 1.0),
    )
    return Experts(
        count,
        positive_int(config, "moe_intermediate_size"),
        ActivationKind.SILU,
        routing,
        gate="w1",
        up="w3",
        down="w2",
        bias="expert_bias" if flag(config, "use_expert_bias", True) else None,
    )
