"""BitNet: Llama with a norm in front of the last linear layer of each branch.

Weights as Llama's, and `self_attn.attn_sub_norm` of what is attended, `mlp.ffn_sub_norm` of the
feed-forward layer's features.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, own_columns, row_parallel
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import activation
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class BitNetModel(Decoder):
    """One BitNet model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5), tied_by_default=True)
        self.activation = activation(config, "hidden_act", "relu2")

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = f"{self.prefix(layer)}.{self.names.attention}"
        bias, out = self.attention_parts.bias, f"{prefix}.o_proj"
        shape = attention.divide(weights, self.sizes.attention(), out)
        names = [f"{prefix}.{which}_proj" for which in "qkv"]
        q, k, v = attention.project_qkv(weights, names, x, shape, bias=bias)
        if rotary is not None:
            q, k = rotary(q, k)
        scales = weights.kv_scales(prefix)
        attended = attention.attend(q, k, v, shape, f"kv{layer}", scales)
        own = shape.features(shape.heads)
        # In a group of one this is a copy, whose rows are of all heads.
        y = ops.all_gather(attended, own.total, shard=shape.shard)
        y = norm.rms_norm(weights, f"{prefix}.attn_sub_norm", y, self.sizes.norm_eps)
        y = own_columns(y, own, (own.size,))
        return row_parallel(weights, out, y, x.width, columns=own, bias=bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"{self.prefix(layer)}.{self.names.feed_forward}"
        down = f"{prefix}.down_proj"
        own = weights.shard.part(self.sizes.intermediate_size)
        gate, up = (
            linear(weights, f"{prefix}.{name}", x, (own.size,), rows=own)
            for name in ("gate_proj", "up_proj")
        )
        y = ops.gated_activation(gate, up, self.activation)
        if not own.whole:
            y = ops.all_gather(y, own.total, shard=weights.shard)
        y = norm.rms_norm(weights, f"{prefix}.ffn_sub_norm", y, self.sizes.norm_eps)
        y = own_columns(y, own, (own.size,))
        return row_parallel(weights, down, y, x.width, columns=own)
