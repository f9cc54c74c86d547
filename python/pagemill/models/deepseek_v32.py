"""DeepSeek-V3.2: V3 whose attention sees the tokens that an indexer chooses for each query. GLM-5
is alike: its layers may use what an earlier layer has chosen, and the rotary pairs of its indexer
are adjacent.

Weights as DeepSeek-V3's, plus `self_attn.indexer.{wq_b,wk,k_norm,weights_proj}` in layers that
choose.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.indexer import Indexer
from pagemill.layers.latent import LatentShape, latent_attention
from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import moe
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import CHOSEN, layer_values
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.indexer_keys import layers_that_choose, read_indexer
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP
from pagemill.ops.trace import Tensor


class DeepseekV32Model(Decoder):
    """One DeepSeek-V3.2 model."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        self._latent = read_latent(config)
        super().__init__(config, rotary_dim=self._latent.rope)
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        dense = int(number(config, "first_k_dense_replace", 3, least=0))
        self._is_sparse = sparse_layers(config, self.sizes.layers, dense=dense)
        self._experts = read_grouped_experts(config, self.activation, count=256, size=2048)
        self._chooses = layers_that_choose(config, self.sizes.layers)
        self._indexer = _read_indexer(config, self._latent)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        sparse: Indexer | Tensor = self._indexer
        if not self._chooses[layer]:
            chosen = list(layer_values(x.trace, CHOSEN).values())
            if not chosen:
                raise ModelConfigError("mtp_indexer_types must be full: no layer is in front of it")
            sparse = chosen[-1]
        return latent_attention(
            weights,
            f"{self.prefix(layer)}.self_attn",
            x,
            self._latent,
            rotary,
            f"kv{layer}",
            bias=self.attention_parts.bias,
            sparse=sparse,
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self._is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)


def _read_indexer(config: Config, latent: LatentShape) -> Indexer:
    is_glm = config.get("model_type") == "glm_moe_dsa"
    interleaved = flag(config, "indexer_rope_interleave", is_glm)
    return read_indexer(config, latent, heads=32 if is_glm else 64, interleaved=interleaved)
