"""Command A with experts (`Cohere2MoeForCausalLM`): Command R7B with experts, and layers that every
token has, in place of most feed-forward layers.

Weights as Command R7B's; in layers with experts `mlp.gate`, `mlp.experts.<i>` and
`mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, moe
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import epsilon, flag, number, positive_int, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing, sparse_layers
from pagemill.ops import Routing, Scoring
from pagemill.ops.trace import Tensor


class Cohere2MoeModel(Decoder):
    """One Command A model with experts."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        layers = self.sizes.layers
        self.parallel = True
        self.interleaved = True
        self.logits_scale = number(config, "logit_scale", 0.0625)
        self.norm_bias = False
        self.layer_norms = config.get("rms_norm_eps") is None
        if not self.layer_norms:
            self.sizes = replace(self.sizes, norm_eps=epsilon(config, "rms_norm_eps", 1e-5))
        self._is_sparse = sparse_layers(config, layers)
        self.windows = windows_by_type(config, layers, pattern=4)
        # Layers without experts rotate also if they are full, unless their pattern says otherwise.
        rotates = positive_int(config, "prefix_dense_sliding_window_pattern", 1) == 1
        self.rotary = [
            table if window or (rotates and not sparse) else None
            for table, window, sparse in zip(
                self.rotary, self.windows, self._is_sparse, strict=True
            )
        ]
        size = self.sizes.intermediate_size
        self._dense = positive_int(config, "prefix_dense_intermediate_size", size)
        count = expert_count(config, 8)
        shared = int(number(config, "num_shared_experts", 0, least=0))
        routing = _routing(config, count)
        self._experts = Experts(count, size, self.activation, routing, shared=size * shared)
        self._averages = bool(shared) and _averages(config)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.mlp"
        if not self._is_sparse[layer]:
            return mlp(weights, name, x, self._dense, self.activation)
        y = moe(weights, name, x, self._experts)
        return ops.scale(y, 0.5) if self._averages else y


def _routing(config: Config, count: int) -> Routing:
    # The softmax of the chosen logits is that of all, divided by its sum.
    scoring = config.get("expert_selection_fn", "softmax")
    if scoring == "softmax":
        return read_routing(config, count, 2, renormalize=True)
    if scoring != "sigmoid":
        raise ModelConfigError("expert_selection_fn must be softmax or sigmoid")
    renormalize = flag(config, "norm_topk_prob", True)
    routing = read_routing(config, count, 2, renormalize=renormalize)
    return replace(routing, scoring=Scoring.SIGMOID)


def _averages(config: Config) -> bool:
    strategy = config.get("shared_expert_combination_strategy", "average")
    if strategy not in ("average", "sum"):
        raise ModelConfigError("shared_expert_combination_strategy must be average or sum")
    return strategy == "average"
