"""A.X-K2: DeepSeek-V3.2 with gates of low rank behind norms, and of the attention's result.

Weights as DeepSeek-V3.2's, but `self_attn.q_b_proj` has for each head the rows of its query and of
its gate; and `input_layernorm.{norm,W_down,W_up}`, of layers with experts also
`post_attention_layernorm.{norm,W_down,W_up}`.

Experts outside of a token's groups are never chosen. `transformers` gives them the score 0, and
chooses them before others whose score with its bias is negative.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults, number, positive_int
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.indexed_decoder import IndexedDecoder
from pagemill.models.indexer_keys import read_indexer
from pagemill.models.latent_keys import read_latent
from pagemill.ops.trace import Tensor

_SIZES = {
    "q_lora_rank": 384,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "routed_scaling_factor": 2.5,
}


class AxK2Model(IndexedDecoder):
    """One A.X-K2 model."""

    def __init__(self, config: Config) -> None:
        config = Defaults(config, _SIZES)
        latent = replace(read_latent(config), gated_queries=True)
        super().__init__(config, rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = True
        self.mlp_parts = MlpParts()
        dense = int(number(config, "first_k_dense_replace", 1, least=0))
        self.is_sparse = sparse_layers(config, self.sizes.layers, dense=dense)
        self.experts = read_grouped_experts(config, self.activation, count=128, size=512)
        self.chooses = (True,) * self.sizes.layers
        self.indexer = read_indexer(config, latent, heads=16)
        self._rank = positive_int(config, "gated_norm_rank", 16)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        if not weights.has(f"{name}.norm.weight"):
            return super().norm(weights, name, x)
        y = super().norm(weights, f"{name}.norm", x)
        low = linear(weights, f"{name}.W_down", y, (self._rank,))
        low = ops.activation(low, ops.ActivationKind.SILU)
        gate = linear(weights, f"{name}.W_up", low, (y.width,))
        return ops.gated_activation(gate, y, ops.ActivationKind.SIGMOID)
