"""Granite Swash (`GraniteSWAForCausalLM`, with experts `GraniteMoeSWAForCausalLM`): Granite 3 with
sliding windows on most layers, sinks in all, and a rotary base for each layer, 0 for none.

Weights as Granite 3's, plus `self_attn.sinks`; experts are `block_sparse_moe.{router,
experts.gate_up_proj, experts.down_proj}`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, PackedNames, packed_moe
from pagemill.models.base import Config
from pagemill.models.config_keys import number, positive_int, rotary_by_base, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.ops.trace import Tensor

_EXPERTS = PackedNames(router="router", up="experts.gate_up_proj", down="experts.down_proj")
_SHARED = MlpParts(up=("input_linear",), down="output_linear")


class GraniteSwaModel(Decoder):
    """One Granite Swash model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = replace(self.attention_parts, sinks="sinks")
        self.attention_scale = number(config, "attention_multiplier", 1.0)
        self.embedding_scale = number(config, "embedding_multiplier", 1.0)
        self.scales_media = True
        self.residual_scale = number(config, "residual_multiplier", 1.0)
        self.logits_scale = 1 / number(config, "logits_scaling", 1.0, least=1e-6)
        self.windows = _windows(config, self.sizes.layers)
        self.rotary = rotary_by_base(config, self.rotary, self.sizes.head_dim)
        self._experts: Experts | None = None
        self._shared = 0
        if config.get("num_local_experts") is not None:
            count, size = positive_int(config, "num_local_experts"), self.sizes.intermediate_size
            routing = read_routing(config, count, 2, renormalize=True)
            self._experts = Experts(count, size, self.activation, routing)
            self._shared = int(number(config, "shared_intermediate_size", 0, least=0))

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if self._experts is None:
            return super().feed_forward(weights, layer, x)
        prefix = self.prefix(layer)
        name = f"{prefix}.block_sparse_moe"
        y = packed_moe(weights, name, x, self._experts, _EXPERTS)
        if not self._shared:
            return y
        name = f"{prefix}.shared_mlp"
        return ops.add(y, mlp(weights, name, x, self._shared, self.activation, _SHARED))


def _windows(config: Config, layers: int) -> list[int]:
    """By default every fourth layer is full, the first one, too."""
    if config.get("layer_types") is not None:
        return list(windows_by_type(config, layers))
    window = positive_int(config, "sliding_window", 128)
    return [window if layer % 4 else 0 for layer in range(layers)]
