"""RWKV-7: recurrent layers whose matrices lose what is stored under a key before they get more.

Weights, as flash-linear-attention names them: `model.layers.<i>.{attn_norm, attn.*, ffn_norm,
ffn.{key, value, x_k}}` (`layers.matrix_wkv`), `model.{embeddings, layers.0.pre_norm, norm}`,
`lm_head` unless tied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.matrix_wkv import RWKV7_SHIFT, LowRanks, OwnHeads, WkvHeads, rwkv7_mixer
from pagemill.layers.norm import layer_norm
from pagemill.layers.stack import stack
from pagemill.layers.wkv import squared_mlp
from pagemill.models.base import (
    IGNORED_IN_DECODERS,
    Config,
    ModelConfigError,
    StepInputs,
)
from pagemill.models.config_keys import flag, number, positive_int, refuse
from pagemill.models.recurrent_model import RecurrentModel
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


class Rwkv7Model(RecurrentModel):
    """One RWKV-7 model."""

    embedding = "model.embeddings"
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.layers\.0\.attn\.v_lora\..*": "the first layer has no values before its own",
    }

    def __init__(self, config: Config) -> None:
        refuse(config, "attn")
        super().__init__(config, eps="norm_eps")
        self._intermediate_size = _intermediate_size(config, self.hidden_size)
        self._norm_bias = flag(config, "norm_bias", True)
        self._norm_first = flag(config, "norm_first", True)
        self._heads = _heads(config, self.hidden_size, self.norm_eps)
        self._ranks = _ranks(config, self.hidden_size, self._heads.size)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = self.embed(weights, inputs)
        if self._norm_first:
            x = self._norm(weights, "model.layers.0.pre_norm", x)
        outs = [f"model.layers.{layer}.attn.o_proj" for layer in range(self.layers)]
        own = self._heads.divide(weights, outs)
        first_values: list[Tensor] = []  # of layer 0, when there is one

        def make_layer(layer: int, x: Tensor) -> Tensor:
            return self._layer(weights, layer, x, own, first_values)

        x = stack(weights, x, self.layers, make_layer)
        return self._norm(weights, "model.norm", x)

    def _norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return layer_norm(weights, name, x, self.norm_eps, bias=self._norm_bias)

    def _layer(
        self,
        weights: Weights,
        layer: int,
        x: Tensor,
        own: OwnHeads,
        first_values: list[Tensor],
    ) -> Tensor:
        prefix = f"model.layers.{layer}"
        y = self._norm(weights, f"{prefix}.attn_norm", x)
        first = first_values[0] if first_values else None
        y, value = rwkv7_mixer(weights, f"{prefix}.attn", y, own, self._ranks, layer, first)
        if not first_values:
            first_values.append(value)
        x = ops.add(x, y)
        y = self._norm(weights, f"{prefix}.ffn_norm", x)
        return ops.add(x, self._feed_forward(weights, f"{prefix}.ffn", layer, y))

    def _feed_forward(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        y = RWKV7_SHIFT.mixed(weights, prefix, x, f"mlp{layer}")("k")
        return squared_mlp(weights, prefix, y, self._intermediate_size)


def _heads(config: Config, hidden: int, eps: float) -> WkvHeads:
    size = positive_int(config, "head_dim", 64)
    count, rest = divmod(hidden, size)
    if rest or positive_int(config, "num_heads", count) != count:
        raise ModelConfigError(f"head_dim={size} must divide hidden_size={hidden} into num_heads")
    return WkvHeads(count, size, eps=size * eps)


def _ranks(config: Config, hidden: int, head_size: int) -> LowRanks:
    """Multiples of 32 near the square root of the hidden size, times a factor, if none are given;
    more for heads of more than 64."""

    def rank(key: str, factor: float) -> int:
        default = max(32, round(factor * math.sqrt(hidden) / 32) * 32)
        return positive_int(config, key, default)

    larger = head_size / 64
    return LowRanks(
        decay=rank("decay_low_rank_dim", 2.5 * larger),
        rate=rank("a_low_rank_dim", 2.5 * larger),
        value=rank("v_low_rank_dim", 1.7 * larger),
        gate=rank("gate_low_rank_dim", 5.0),
    )


def _intermediate_size(config: Config, hidden: int) -> int:
    if (kind := config.get("hidden_act", "sqrelu")) != "sqrelu":
        raise ModelConfigError(f"hidden_act={shown(kind)} is not supported, only sqrelu")
    if config.get("intermediate_size") is not None:
        return positive_int(config, "intermediate_size")
    ratio = number(config, "hidden_ratio", 4.0, least=1 / hidden)
    return max(1, -(-int(hidden * ratio) // 32)) * 32
