"""Granite 3 with experts (`GraniteMoeForCausalLM`), and with a feed-forward layer beside them
(`GraniteMoeSharedForCausalLM`).

Weights as Granite's, with `block_sparse_moe.{router.layer, input_linear, output_linear}` and, if
there is one, `shared_mlp.{input_linear, output_linear}` for `mlp`. input_linear holds the rows of
gate and up.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, moe, packed_moe
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.ops.trace import Tensor


class GraniteMoeModel(Decoder):
    """One Granite 3 model with experts."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_scale = number(config, "attention_multiplier", 1.0)
        self.embedding_scale = number(config, "embedding_multiplier", 1.0)
        self.scales_media = True
        self.residual_scale = number(config, "residual_multiplier", 1.0)
        self.logits_scale = 1 / number(config, "logits_scaling", 1.0, least=1e-6)
        count = positive_int(config, "num_local_experts", 8)
        routing = read_routing(config, count, 2, renormalize=True)
        size = self.sizes.intermediate_size
        self._experts = Experts(count, size, self.activation, routing)
        self._fused = flag(config, "gate_and_up_fused", True)
        if self._fused:
            self.mlp_parts = MlpParts(up=("input_linear",), down="output_linear")
        shared = config.get("shared_intermediate_size")
        self._shared = positive_int(config, "shared_intermediate_size") if shared else 0

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = self.prefix(layer)
        chosen = packed_moe if self._fused else moe
        y = chosen(weights, f"{prefix}.block_sparse_moe", x, self._experts)
        if not self._shared:
            return y
        name = f"{prefix}.shared_mlp"
        return ops.add(y, mlp(weights, name, x, self._shared, self.activation, self.mlp_parts))
