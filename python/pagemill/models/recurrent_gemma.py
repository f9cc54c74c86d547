"""RecurrentGemma: Gemma with a gated linear recurrence in two of three layers, and attention over a
window in the others.

Weights: `model.layers.<i>.{temporal_pre_norm, channel_pre_norm}`, `mlp_block` as Llama's with
biases, and `temporal_block`, as Llama's attention with a bias of o_proj, or the recurrence's
(`layers.gated_recurrence`); `model.{embed_tokens,final_norm}`; the head is tied.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.gated_recurrence import RecurrenceShape, gated_recurrence
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    Defaults,
    activation,
    as_list,
    flag,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_RECURRENT, _ATTENTION = "recurrent", "attention"
_TAPS = 4
# States and windows have no limit of positions; the first checkpoints were trained on so many.
_DEFAULTS = {"max_position_embeddings": 8192, "partial_rotary_factor": 0.5}


class RecurrentGemmaModel(Decoder):
    """One RecurrentGemma model."""

    names = DecoderNames(
        norm="model.final_norm",
        attention_norm="temporal_pre_norm",
        attention="temporal_block",
        feed_forward_norm="channel_pre_norm",
        feed_forward="mlp_block",
    )

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _DEFAULTS)
        super().__init__(config, tied_by_default=True)
        layers, hidden = self.sizes.layers, self.sizes.hidden_size
        size, rest = divmod(self.sizes.intermediate_size, 2)
        if rest:
            raise ModelConfigError("intermediate_size, that of gate and up together, must be even")
        self.sizes = replace(self.sizes, intermediate_size=size)
        self._kinds = _kinds(config, layers)
        window = positive_int(config, "attention_window_size", 2048)
        self.windows = (window,) * layers
        self.attention_parts = AttentionParts(
            bias=flag(config, "attention_bias", False), output_bias=True
        )
        self.mlp_parts = MlpParts(bias=True)
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.norm_offset = 1.0
        self.embedding_scale = _as_bf16(hidden**0.5)
        self.scales_media = True
        self.logits_cap = number(config, "logits_soft_cap", 30.0, least=0.0)
        width = positive_int(config, "lru_width", hidden)
        if width % self.sizes.heads:
            raise ModelConfigError(f"{self.sizes.heads} heads cannot share lru_width={width}")
        taps = positive_int(config, "conv1d_width", _TAPS)
        self._recurrence = RecurrenceShape(width, self.sizes.heads, taps, self.activation)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if self._kinds[layer] == _ATTENTION:
            return super().attention(weights, layer, x, rotary)
        name = f"{self.prefix(layer)}.{self.names.attention}"
        return gated_recurrence(weights, name, x, self._recurrence, layer)


def _as_bf16(value: float) -> float:
    """The nearest of 8 significant bits, as the scale of embeddings is stored."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256) / 256, exponent)


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    """Whether a layer is recurrent or attends: `block_types` over and over."""
    kinds = as_list(config.get("block_types") or [_RECURRENT, _RECURRENT, _ATTENTION])
    if not kinds or not set(kinds) <= {_RECURRENT, _ATTENTION}:
        raise ModelConfigError(
            f"block_types must list recurrent and attention, it is {shown(config['block_types'])}"
        )
    return tuple(kinds[layer % len(kinds)] for layer in range(layers))
