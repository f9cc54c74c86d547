"""Hunyuan with experts: the dense Hunyuan with experts in every layer, beside a feed-forward layer
of the same width.

Weights as the dense Hunyuan's, with `mlp.gate.wg`, `mlp.experts.<i>` and `mlp.shared_mlp` for
`mlp`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, refuse
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing


class HunyuanMoeModel(Decoder):
    """One Hunyuan model with experts."""

    def __init__(self, config: Config) -> None:
        refuse(config, "use_cla", "moe_layer_num_skipped")
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        names = ("query_layernorm", "key_layernorm")
        qk_norm = QkNorm(self.sizes.norm_eps, names=names, rotated=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        alike = {
            "num_experts": _of_all_layers(config, "num_experts"),
            "num_experts_per_tok": _of_all_layers(config, "moe_topk"),
        }
        count, size = expert_count(alike, 1), self.sizes.intermediate_size
        self.experts = Experts(
            count,
            size,
            self.activation,
            read_routing(alike, count, 1, renormalize=True),
            router="gate.wg",
            shared=size,
            shared_name="shared_mlp",
        )


def _of_all_layers(config: Config, key: str) -> object:
    """The value of `key`, which may be a list with the same number for each layer."""
    values = as_list(config.get(key))
    if not values:
        return config.get(key)
    if any(value != values[0] for value in values):
        raise ModelConfigError(f"{key} must be the same in all layers of this family")
    return values[0]
