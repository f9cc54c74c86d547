"""The language model of ERNIE 4.5 VL: ERNIE 4.5 with experts for text, and others, which are
narrower, for tokens of images.

Weights as ERNIE 4.5's with experts, but routers are stored transposed: `mlp.gate.weight` for text
and `mlp.gate.weight_1` for images; the bias of the choice has a row for each, and the experts for
images are behind those for text.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.computed import row
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import chosen_experts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list
from pagemill.models.ernie4_5_moe import Ernie45MoeModel
from pagemill.models.expert_keys import sparse_layers
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_WIDTHS = [1536, 512]  # of experts, those of the configuration's class
_ROUTERS = ("gate.weight", "gate.weight_1")
_TEXT_ROWS, _MEDIA_ROWS = "text_rows", "media_rows"


class Ernie45VlTextModel(Ernie45MoeModel):
    """One such model. A program without media has the experts for text alone."""

    def __init__(self, config: Config) -> None:
        value: object = config.get("moe_intermediate_size", _WIDTHS)
        widths = as_list(value) or []
        if len(widths) != 2 or not all(type(width) is int and width > 0 for width in widths):
            raise ModelConfigError(
                "moe_intermediate_size must have two widths, of experts for text and for images,"
                f" it is {shown(value)}"
            )
        super().__init__({**config, "moe_intermediate_size": widths[0]})
        self.is_sparse = sparse_layers(config, self.sizes.layers, dense=1)
        assert self.experts is not None
        count = self.experts.count
        text = replace(self.experts, stored=2 * count)
        self._kinds = text, replace(text, intermediate=widths[1], first=count)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if not self.is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        prefix, trace = f"{self.prefix(layer)}.mlp", weights.trace
        if trace.declares_input(_TEXT_ROWS):
            y = x  # each row is replaced
            for kind, name in enumerate((_TEXT_ROWS, _MEDIA_ROWS)):
                rows = trace.declared_input(name)
                own = self._routed(weights, prefix, ops.select_rows(x, rows), kind)
                y = ops.scatter_rows(y, own, rows)
        else:
            weights.claim(f"{prefix}.{_ROUTERS[1]}")
            y = self._routed(weights, prefix, x, 0)
        experts = self._kinds[0]
        if not experts.shared:
            return y
        name = f"{prefix}.{experts.shared_name}"
        return ops.add(y, mlp(weights, name, x, experts.shared, self.activation, self.mlp_parts))

    def _routed(self, weights: Weights, prefix: str, x: Tensor, kind: int) -> Tensor:
        """x [N, H] -> the weighted sum of each row's experts, [N, H]; `kind` is 0 for text, 1 for
        images."""
        experts = self._kinds[kind]
        count = experts.count
        router = weights.turned_matrix(f"{prefix}.{_ROUTERS[kind]}", (count, x.width))
        bias = row(weights, f"{prefix}.{experts.bias}", kind, (len(self._kinds), count))
        first = weights.shard.experts(count).begin
        logits = ops.linear(x, router, dtype="f32")
        chosen = ops.moe_route(logits, experts.routing, bias, first=first)
        return chosen_experts(weights, prefix, x, chosen, experts)
