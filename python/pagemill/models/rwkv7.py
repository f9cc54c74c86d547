"""RWKV-7: recurrent layers whose matrices lose what is stored under a key before they get more.

Weights, as flash-linear-attention names them: `model.layers.<i>.{attn_norm, attn.*, ffn_norm,
ffn.{key, value, x_k}}` (`layers.matrix_wkv`), `model.{embeddings, layers.0.pre_norm, norm}`,
`lm_head` unless tied.
"""

from __future__ import annotations

import math
from typing import Self

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.matrix_wkv import RWKV7_SHIFT, LowRanks, OwnHeads, WkvHeads, rwkv7_mixer
from pagemill.layers.norm import layer_norm
from pagemill.layers.stack import stack
from pagemill.layers.wkv import squared_mlp
from pagemill.models.base import (
    IGNORED_IN_DECODERS,
    Config,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import epsilon, flag, number, positive_int, refuse
from pagemill.models.rwkv_decoder import MAX_MODEL_LEN
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_EMBEDDING = "model.embeddings"


class Rwkv7Model:
    """One RWKV-7 model."""

    ignored = {
        **IGNORED_IN_DECODERS,
        r"model\.layers\.0\.attn\.v_lora\..*": "the first layer has no values before its own",
    }

    def __init__(self, config: Config) -> None:
        refuse(config, "attn")
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "hidden_size")
        self._layers = positive_int(config, "num_hidden_layers")
        self._intermediate_size = _intermediate_size(config, self._hidden_size)
        self._max_model_len = positive_int(config, "max_position_embeddings", MAX_MODEL_LEN)
        self._eps = epsilon(config, "norm_eps", 1e-5)
        self._norm_bias = flag(config, "norm_bias", True)
        self._norm_first = flag(config, "norm_first", True)
        self._tied = flag(config, "tie_word_embeddings", False)
        self._heads = _heads(config, self._hidden_size, self._eps)
        self._ranks = _ranks(config, self._hidden_size, self._heads.size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return ModelTraits(
            self._vocab_size, self._hidden_size, self._max_model_len, causal=True, generates=True
        )

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self._vocab_size, self._hidden_size)
        x = inputs.with_media(embedding.embedding(weights, _EMBEDDING, inputs.token_ids, table))
        if self._norm_first:
            x = self._norm(weights, "model.layers.0.pre_norm", x)
        outs = [f"model.layers.{layer}.attn.o_proj" for layer in range(self._layers)]
        own = self._heads.divide(weights, outs)
        first_values: list[Tensor] = []  # of layer 0, when there is one

        def make_layer(layer: int, x: Tensor) -> Tensor:
            return self._layer(weights, layer, x, own, first_values)

        x = stack(weights, x, self._layers, make_layer)
        return self._norm(weights, "model.norm", x)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        head = _EMBEDDING if self._tied else "lm_head"
        return embedding.logits(weights, rows, self._vocab_size, head)

    def _norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return layer_norm(weights, name, x, self._eps, bias=self._norm_bias)

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
