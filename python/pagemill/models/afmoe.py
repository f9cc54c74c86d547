"""AFMoE (Trinity): norms in front of and behind each branch, gated attention, norms on each head of
q and k, sliding windows, full layers without positions, and experts that a router of sigmoids
chooses.

Weights as Llama's, plus `self_attn.{q,k}_norm`, `self_attn.gate_proj`, `pre_mlp_layernorm` and
`post_mlp_layernorm`; in layers with experts `mlp.router.gate`, `mlp.expert_bias`, `mlp.experts.<i>`
and `mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import flag, number, positive_int, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_behind
from pagemill.ops import Scoring
from pagemill.ops.trace import Tensor


class AfmoeModel(Decoder):
    """One AFMoE model."""

    def __init__(self, config: Config) -> None:
        if config.get("score_func", "sigmoid") != "sigmoid":
            raise ModelConfigError("score_func must be sigmoid in this family")
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = replace(
            self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps), gate="gate_proj"
        )
        every = 0
        if config.get("layer_types") is None:
            every = positive_int(config, "global_attn_every_n_layers", 4)
        self.windows = windows_by_type(config, self.sizes.layers, pattern=every)
        self.rotary = self.rotary_in_windows()
        if flag(config, "mup_enabled", False):
            self.embedding_scale = self.sizes.hidden_size**0.5
            self.scales_media = True
        self.is_sparse = sparse_behind(config, self.sizes.layers, dense=1, key="num_dense_layers")
        count = expert_count(config, 64)
        size = positive_int(config, "moe_intermediate_size", 1408)
        renormalize = flag(config, "route_norm", True)
        self.experts = Experts(
            count,
            size,
            self.activation,
            replace(
                read_routing(config, count, 6, renormalize=renormalize),
                scoring=Scoring.SIGMOID,
                scale=number(config, "route_scale", 1.0),
            ),
            router="router.gate",
            bias="expert_bias",
            shared=size * positive_int(config, "num_shared_experts", 2),
        )

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.norm(weights, f"{prefix}.pre_mlp_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_mlp_layernorm", y))
