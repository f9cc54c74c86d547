"""DeepSeek-V3.2: V3 whose attention sees the tokens that an indexer chooses for each query. GLM-5
is alike: its layers may use what an earlier layer has chosen, and the rotary pairs of its indexer
are adjacent.

Weights as DeepSeek-V3's, plus `self_attn.indexer.{wq_b,wk,k_norm,weights_proj}` in layers that
choose.
"""

from __future__ import annotations

from pagemill.layers.indexer import Indexer
from pagemill.layers.latent import LatentShape
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.indexed_decoder import IndexedDecoder
from pagemill.models.indexer_keys import layers_that_choose, read_indexer
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP


class DeepseekV32Model(IndexedDecoder):
    """One DeepSeek-V3.2 model."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(config, rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        dense = int(number(config, "first_k_dense_replace", 3, least=0))
        self.is_sparse = sparse_layers(config, self.sizes.layers, dense=dense)
        self.experts = read_grouped_experts(config, self.activation, count=256, size=2048)
        self.chooses = layers_that_choose(config, self.sizes.layers)
        self.indexer = _read_indexer(config, latent)


def _read_indexer(config: Config, latent: LatentShape) -> Indexer:
    is_glm = config.get("model_type") == "glm_moe_dsa"
    interleaved = flag(config, "indexer_rope_interleave", is_glm)
    return read_indexer(config, latent, heads=32 if is_glm else 64, interleaved=interleaved)
