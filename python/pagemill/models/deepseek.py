"""DeepSeekMoE (`DeepseekForCausalLM`), the first DeepSeek models with experts: Llama with experts
in all but the first layers, of which some are those of every token.

Weights as Llama's; in layers with experts `mlp.gate`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.moe import moe
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_softmax_experts
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


class DeepseekModel(Decoder):
    """One DeepSeekMoE model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        scores = config.get("scoring_func", "softmax")
        if scores != "softmax":
            raise ModelConfigError(f"scoring_func is {shown(scores)}; known: softmax")
        self._dense_layers = number(config, "first_k_dense_replace", 0, least=0)
        self._sparse_step = positive_int(config, "moe_layer_freq", 1)
        self._experts = read_softmax_experts(
            config,
            self.activation,
            count=64,
            size=1407,
            choices=6,
            renormalize=False,
            count_key="n_routed_experts",
            shared_key="n_shared_experts",
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if layer < self._dense_layers or layer % self._sparse_step:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
