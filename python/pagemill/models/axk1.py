"""A.X-K1: DeepSeek V3 with a norm after the experts.

Weights as DeepSeek-V3's, plus `post_mlp_layernorm`, which layers without experts do not use; the
router's bias may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import moe
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.latent_keys import read_latent
from pagemill.ops.trace import Tensor


class AxK1Model(Decoder):
    """One A.X-K1 model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.layers\.\d+\.post_mlp_layernorm\.weight": "layers without experts do not use it",
    }

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(config, rotary_dim=latent.rope)
        self.latent = latent
        self.interleaved = flag(config, "rope_interleave", True)
        self.mlp_parts = MlpParts()
        dense = int(number(config, "first_k_dense_replace", 1, least=0))
        self._is_sparse = sparse_layers(config, self.sizes.layers, dense=dense)
        self._experts = read_grouped_experts(config, self.activation, count=192, size=2048)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self._is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        prefix, experts = self.prefix(layer), self._experts
        if not weights.has(f"{prefix}.mlp.{experts.bias}"):
            experts = replace(experts, bias=None)
        y = moe(weights, f"{prefix}.mlp", x, experts)
        return self.norm(weights, f"{prefix}.post_mlp_layernorm", y)
