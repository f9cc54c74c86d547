"""Aria's language model: Llama with experts, and feed-forward layers that every token has.

Weights as Llama's, with `mlp.{router, experts.fc1, experts.fc2}` and
`mlp.shared_experts.{gate,up,down}_proj` for `mlp`. fc1 has the columns of gate and then of up of
all experts, stored as [experts, in, out]; newer names of both are `experts.gate_up_proj` and
`experts.down_proj`, without `.weight`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, PackedNames, packed_moe
from pagemill.models.base import Config
from pagemill.models.config_keys import positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_PUBLISHED = PackedNames("router", "experts.fc1.weight", "experts.fc2.weight", turned=True)
_NEWER = PackedNames("router", "experts.gate_up_proj", "experts.down_proj", turned=True)


class AriaTextModel(Decoder):
    """One language model of Aria."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        count = positive_int(config, "moe_num_experts", 8)
        choices = {"num_experts_per_tok": positive_int(config, "moe_topk", 2)}
        routing = read_routing(choices, count, 2, renormalize=True)
        size = self.sizes.intermediate_size
        # Experts alone have the gates of SiLU whatever the configuration says.
        self._experts = Experts(count, size, ActivationKind.SILU, routing)
        self._shared = size * positive_int(config, "moe_num_shared_experts", 2)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.mlp"
        names = _PUBLISHED if weights.has(f"{name}.{_PUBLISHED.up}") else _NEWER
        y = packed_moe(weights, name, x, self._experts, names)
        parts = self.mlp_parts
        shared = mlp(weights, f"{name}.shared_experts", x, self._shared, self.activation, parts)
        return ops.add(y, shared)
