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
from pagemill.models.config_keys import as_list, flag, number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.latent_keys import read_latent
from pagemill.models.mtp_layer import DEEPSEEK_MTP
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


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
        self._chooses = _layers_that_choose(config, self.sizes.layers)
        self._indexer = _read_indexer(config, self._latent)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        sparse: Indexer | Tensor = self._indexer
        if not self._chooses[layer]:
            sparse = list(layer_values(x.trace, CHOSEN).values())[-1]
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
    size = positive_int(config, "index_head_dim", 128)
    if size <= latent.rope or latent.query is None:
        raise ModelConfigError(
            f"an indexer needs q_lora_rank, and index_head_dim above {latent.rope}, the elements"
            f" that rotate; it is {size}"
        )
    is_glm = config.get("model_type") == "glm_moe_dsa"
    return Indexer(
        heads=positive_int(config, "index_n_heads", 32 if is_glm else 64),
        size=size,
        rope=latent.rope,
        # A query sees no more tokens than there are positions.
        choices=min(
            positive_int(config, "index_topk", 2048),
            positive_int(config, "max_position_embeddings"),
        ),
        interleaved=flag(config, "indexer_rope_interleave", is_glm),
    )


def _layers_that_choose(config: Config, layers: int) -> list[bool]:
    """Whether each layer has an indexer: from `indexer_types`, or the pattern (F and S) or the
    frequency that older configurations have; else all.

    Raises:
        ModelConfigError: they do not fit the layers, or the first layer has none.
    """
    stated = config.get("indexer_types")
    if stated is None and config.get("index_topk_pattern") is not None:
        pattern = config["index_topk_pattern"]
        names = {"F": "full", "S": "shared"}
        stated = [names.get(c, c) for c in pattern] if isinstance(pattern, str) else pattern
    if stated is None:
        every = positive_int(config, "index_topk_freq", 1)
        first = int(number(config, "index_skip_topk_offset", 2, least=0))
        return [max(layer - first + 1, 0) % every == 0 for layer in range(layers)]
    types = as_list(stated) or []
    if len(types) != layers or types[0] != "full" or not set(types) <= {"full", "shared"}:
        raise ModelConfigError(
            f"indexer_types must list {layers} layers, full or shared, the first full; it is"
            f" {shown(stated)}"
        )
    return [kind == "full" for kind in types]
