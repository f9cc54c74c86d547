"""Apertus: Llama with norms on each head of q and k, and xIELU without gates.

Weights as Llama's, without `mlp.gate_proj`, with `attention_layernorm` and `feedforward_layernorm`
for its norms, plus `self_attn.{q,k}_norm` and `mlp.act_fn.{alpha_p,alpha_n,beta}`. A GGUF file
states the last three as `xielu_*` of the configuration, a number for each layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.linear import linear, row_parallel
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import Renamed, numbers
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

# `feed_forward` has an activation of its own, which is none of one name.
_KEYS = {"hidden_act": "other_hidden_act"}


class ApertusModel(Decoder):
    """One Apertus model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.layers\.\d+\.mlp\.act_fn\.eps": "differences below 1e-6 near 0 are rounded",
    }
    names = DecoderNames(
        attention_norm="attention_layernorm", feed_forward_norm="feedforward_layernorm"
    )

    def __init__(self, config: Config) -> None:
        if config.get("hidden_act", "xielu") != "xielu":
            raise ModelConfigError("hidden_act must be xielu in this family")
        super().__init__(Renamed(config, _KEYS), eps=("rms_norm_eps", 1e-5))
        qk_norm = QkNorm(self.sizes.norm_eps)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self._stated = {
            name: numbers(config, f"xielu_{name}", self.sizes.layers)
            for name in ("alpha_p", "alpha_n", "beta")
            if config.get(f"xielu_{name}") is not None
        }

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.mlp"
        down = f"{name}.down_proj"
        blocks = weights.block_elements(f"{down}.weight")
        part = weights.shard.part(self.sizes.intermediate_size, blocks)
        y = linear(weights, f"{name}.up_proj", x, (part.size,), rows=part)
        beta, positive, negative = (
            self._stated[what][layer] if self._stated else weights.number(f"{name}.act_fn.{what}")
            for what in ("beta", "alpha_p", "alpha_n")
        )
        y = _xielu(y, beta, positive, negative)
        return row_parallel(weights, down, y, x.width, columns=part)


def _xielu(x: Tensor, beta: float, alpha_p: float, alpha_n: float) -> Tensor:
    """p x^2 + beta x, or n (e^x - 1 - x) + beta x if x < 0 (arXiv 2411.13010), of learned p and n:
    elu(x) - x is 0 if x > 0, and so is the square of relu(x) if x < 0."""
    positive, negative = _softplus(alpha_p), beta + _softplus(alpha_n)
    square = ops.scale(ops.activation(x, ActivationKind.RELU_SQUARED), positive)
    bend = ops.scale(ops.activation(x, ActivationKind.ELU), negative)
    return ops.add(ops.add(square, bend), ops.scale(x, beta - negative))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
