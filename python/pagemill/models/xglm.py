"""XGLM: sinusoidal positions, layer norms, GELU without gates, biases everywhere.

Weights: `model.layers.<i>.{self_attn_layer_norm, self_attn.{q,k,v,out}_proj, final_layer_norm, fc1,
fc2}`, `model.{embed_tokens, layer_norm}`, `lm_head` unless tied. Positions are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import Renamed, activation, flag, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.concat import MAX_INPUTS
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # not in the configuration
_LONGEST_WAVE = 10_000.0  # over 2 pi, in positions
_FIRST_POSITION = 2  # of a table that fairseq counted from its padding token
_MOST_PAIRS = 256  # of one rotary embedding
_KEYS = {
    "hidden_size": "d_model",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "attention_heads",
}


class XglmModel(Decoder):
    """One XGLM model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.embed_positions\.weights": "positions are computed",
    }
    names = DecoderNames(
        norm="model.layer_norm",
        attention_norm="self_attn_layer_norm",
        feed_forward_norm="final_layer_norm",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "add_cross_attention")
        config = Renamed(config, _KEYS)
        super().__init__(config, tied_by_default=True)
        hidden = self.sizes.hidden_size
        if hidden % (2 * MAX_INPUTS) or hidden > 2 * MAX_INPUTS * _MOST_PAIRS:
            raise ModelConfigError(
                f"d_model={hidden} is not supported by this family: it must be a multiple of"
                f" {2 * MAX_INPUTS}, at most {2 * MAX_INPUTS * _MOST_PAIRS}"
            )
        self.layer_norms = True
        self.sizes = replace(self.sizes, norm_eps=_EPS)
        self.rotary = (None,) * self.sizes.layers
        if flag(config, "scale_embedding", True):
            self.embedding_scale = hidden**0.5
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "activation_function", "gelu")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = super().embed(weights, inputs)
        return ops.add(x, _waves(weights, x, inputs.positions))

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, name = self.sizes.intermediate_size, self.prefix(layer)
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)


def _waves(weights: Weights, x: Tensor, positions: Tensor) -> Tensor:
    """For each row of x [T, H], the sines and then the cosines of its position, [T, H]."""
    half = x.width // 2
    size = half // MAX_INPUTS  # pairs that one rotary embedding has
    slowest = math.log(_LONGEST_WAVE) / (half - 1)
    # The vector (0, 1), turned backward by an angle, is its sine and cosine. One such vector for
    # each row and pair: 0 times what is in x, plus the vector.
    zeros = norm.zeros(weights, 2 * size)
    rows = ops.rms_norm(ops.split(x, 2 * size)[0], zeros, eps=1.0, row_shape=(1, 2 * size))
    rows = ops.add(rows, weights.constant("not_turned", [0.0] * size + [1.0] * size))
    parts: list[tuple[Tensor, Tensor]] = []
    for first in range(0, half, size):
        frequencies = [-math.exp(-slowest * i) for i in range(first, first + size)]
        backward = weights.constant(f"waves.{first}", frequencies)
        turned, _ = ops.rotary(rows, rows, positions, backward, offset=_FIRST_POSITION)
        parts.append(ops.split(turned, size))
    sines, cosines = zip(*parts, strict=True)
    return ops.concat(ops.concat(*sines), ops.concat(*cosines))
