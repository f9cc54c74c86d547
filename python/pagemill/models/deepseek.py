"""DeepSeekMoE (`DeepseekForCausalLM`), the first DeepSeek models with experts: Llama with experts
in all but the first layers, of which some are those of every token.

Weights as Llama's; in layers with experts `mlp.gate`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_softmax_experts, sparse_behind, sparse_layers
from pagemill.weights.json_file import shown


class DeepseekModel(Decoder):
    """One DeepSeekMoE model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        scores = config.get("scoring_func", "softmax")
        if scores != "softmax":
            raise ModelConfigError(f"scoring_func is {shown(scores)}; known: softmax")
        step = positive_int(config, "moe_layer_freq", 1)
        sparse = sparse_behind(config, self.sizes.layers)
        self.is_sparse = [behind and layer % step == 0 for layer, behind in enumerate(sparse)]
        if config.get("mlp_layer_types") is not None:
            self.is_sparse = sparse_layers(config, self.sizes.layers)
        self.experts = read_softmax_experts(
            config,
            self.activation,
            count=64,
            size=1407,
            choices=6,
            renormalize=False,
            count_key="n_routed_experts",
            shared_key="n_shared_experts",
        )
