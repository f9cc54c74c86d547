"""LFM3: gated short convolutions in place of most attentions, norms in front of and behind each
branch, and attention with a gate for each head and norms on q and k.

Weights: `model.layers.<i>.{operator_norm, post_operator_norm, ffn_norm, post_ffn_norm}`, either
`self_attn.{q,k,v,o,gate}_proj` and `self_attn.{q,k}_norm` or `conv.*` (`layers.short_conv`), and
`feed_forward.{w1,w3,w2}`; `model.{embed_tokens,embedding_norm}`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.layers.short_conv import ShortConv, short_conv
from pagemill.models.base import Config
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Defaults,
    flag,
    layer_count,
    layer_types,
    positive_int,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_CONV = "conv"
# Those of the configuration's class.
_ROTARY = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
}


class Lfm3Model(Decoder):
    """One LFM3 model."""

    names = DecoderNames(
        norm="model.embedding_norm",
        attention_norm="operator_norm",
        feed_forward_norm="ffn_norm",
        feed_forward="feed_forward",
    )

    def __init__(self, config: Config) -> None:
        config = Defaults(config, {"rope_parameters": _ROTARY})
        self._types = _read_types(config)
        super().__init__(
            config,
            tied_by_default=True,
            eps=("norm_eps", 1e-5),
            layer_types=[FULL if kind == _CONV else kind for kind in self._types],
        )
        gate = "gate_proj" if flag(config, "use_attention_gate", True) else None
        self.attention_parts = replace(
            self.attention_parts,
            qk_norm=QkNorm(self.sizes.norm_eps),
            gate=gate,
            gate_by_head=True,
        )
        self.mlp_parts = MlpParts(up=("w1", "w3"), down="w2")
        if SLIDING in self._types:
            window = positive_int(config, "sliding_window", 256)
            self.windows = [window if kind == SLIDING else 0 for kind in self._types]
        self._conv = ShortConv(
            taps=positive_int(config, "conv_L_cache", 7), bias=flag(config, "conv_bias", False)
        )
        self._norms_behind = flag(config, "use_sandwich_norm", True)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if self._types[layer] == _CONV:
            return short_conv(weights, f"{self.prefix(layer)}.conv", x, self._conv, layer)
        return super().attention(weights, layer, x, rotary)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if not self._norms_behind:
            return super().layer(weights, layer, x, rotary)
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.operator_norm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_operator_norm", y))
        y = self.norm(weights, f"{prefix}.ffn_norm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_ffn_norm", y))


def _read_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer. By default, of four layers the third is full, the first has a window,
    except in the first four, and the others are convolutions."""
    layers = layer_count(config)
    types = layer_types(config, layers, (_CONV, FULL, SLIDING))
    period = (SLIDING, _CONV, FULL, _CONV)
    return types or (_CONV, *(period[layer % 4] for layer in range(1, layers)))
