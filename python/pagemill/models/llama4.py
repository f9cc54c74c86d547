"""Llama 4 (text): layers with rotary positions attend within chunks; the others have no positions,
attend to everything and scale queries by their position. Most layers have experts, which read what
the router's sigmoid scales.

Weights as Llama's, with `feed_forward` for `mlp`; in layers with experts `feed_forward.router`,
`feed_forward.shared_expert`, and `feed_forward.experts.{gate_up_proj,down_proj}` of all experts
together, transposed.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm, rotary_attention
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import sum_of_ranks
from pagemill.layers.rotary import QueryGrowth, Rotary
from pagemill.layers.stack import EXPERTS, name_in_layer
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    as_list,
    flag,
    layer_numbers,
    layer_types,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.ops import Scoring
from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_CHUNKED = "chunked_attention"


class Llama4Model(Decoder):
    """One Llama 4 text model."""

    names = DecoderNames(feed_forward="feed_forward")

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.interleaved = True
        layers = self.sizes.layers
        self._rotates = _rotates(config, layers)
        types = layer_types(config, layers, (_CHUNKED, FULL))
        if types is None:
            types = tuple(_CHUNKED if rotates else FULL for rotates in self._rotates)
        chunk = positive_int(config, "attention_chunk_size", 8192)
        self.windows = [chunk if kind == _CHUNKED else 0 for kind in types]
        norms = QkNorm(self.sizes.norm_eps, weight=False, rotated=True)
        growth = QueryGrowth(
            number(config, "attn_scale", 0.1), positive_int(config, "floor_scale", 8192), offset=1
        )
        parts = self.attention_parts
        self._with_positions = replace(
            parts, qk_norm=norms if flag(config, "use_qk_norm", True) else None
        )
        self._without_positions = replace(
            parts, growth=growth if flag(config, "attn_temperature_tuning", True) else None
        )
        self._count = positive_int(config, "num_local_experts", 16)
        routing = read_routing(config, self._count, 1, renormalize=False)
        if routing.choices != 1:
            raise ModelConfigError("num_experts_per_tok must be 1 in this family")
        self._fused = flag(config, "gate_and_up_fused", True)
        self._routing = replace(routing, scoring=Scoring.SIGMOID)
        if config.get("moe_layers") is None:
            every = positive_int(config, "interleave_moe_layer_step", 1)
            self._sparse = frozenset(range(every - 1, layers, every))
        else:
            self._sparse = layer_numbers(config, "moe_layers")
        self._dense_size = positive_int(config, "intermediate_size_mlp", 16384)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name = f"{self.prefix(layer)}.self_attn"
        window = self.windows[layer]
        shape = replace(self.sizes.attention(window=window), chunked=window > 0)
        parts = self._with_positions
        if not self._rotates[layer]:
            rotary, parts = rotary.still(), self._without_positions
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", parts)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.feed_forward"
        if layer not in self._sparse:
            return mlp(weights, name, x, self._dense_size, self.activation)
        y = self._chosen_expert(weights, name, x)
        size = self.sizes.intermediate_size
        return ops.add(y, mlp(weights, f"{name}.shared_expert", x, size, self.activation))

    def _chosen_expert(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [N, H] -> the result of each row's expert on the row times its share, [N, H]."""
        logits = linear(weights, f"{name}.router", x, (self._count,), dtype="f32")
        shard = weights.shard
        own = shard.experts(self._count)
        ids, shares = ops.moe_route(logits, self._routing, first=own.begin)
        ids = name_in_layer(ids, EXPERTS)
        inner, hidden = self.sizes.intermediate_size, x.width
        part, experts = shard.expert_features(inner), f"{name}.experts"

        def layer(module: str, parameter: str, rows: Part, features: int) -> ExpertLayer:
            return ExpertLayer(
                own, experts, module, experts, parameter, rows, features, turned=True
            )

        def wide(module: str, first: int, x: Tensor) -> Tensor:
            rows = Part(first + part.begin, first + part.end, 2 * inner)
            if self._fused:
                fused, shape = f"{experts}.gate_up_proj", (self._count, 2 * inner, hidden)
                weight = weights.turned_stack(fused, shape, matrices=own, rows=rows)
            else:
                shape = (self._count, inner, hidden)
                weight = weights.stack(experts, module, shape, matrices=own, rows=part)
            (y,) = ops.grouped_linear(x, ids, weight)
            adapted = layer(module, "gate_up_proj", rows, hidden)
            return weights.adapted_experts(adapted, ids, x, y, rows=part)

        # Up and down are linear: their share is multiplied at the end.
        gate = wide("gate_proj", 0, ops.moe_combine(x, shares))
        up = wide("up_proj", inner, x)
        y = ops.gated_activation(gate, up, self.activation)
        shape = (self._count, hidden, inner)
        if self._fused:
            down = weights.turned_stack(f"{experts}.down_proj", shape, matrices=own, columns=part)
        else:
            down = weights.stack(experts, "down_proj", shape, matrices=own, columns=part)
        adapted = layer("down_proj", "down_proj", Part(0, hidden, hidden), inner)
        (z,) = ops.grouped_linear(y, ids, down)
        z = weights.adapted_experts(adapted, ids, y, z, columns=part)
        return sum_of_ranks(weights, ops.moe_combine(z, shares))


def _rotates(config: Config, layers: int) -> list[bool]:
    """Whether each layer has rotary positions: all but every fourth, unless the configuration lists
    them."""
    stated = config.get("no_rope_layers")
    if not stated:
        every = positive_int(config, "no_rope_layer_interval", 4)
        return [(layer + 1) % every > 0 for layer in range(layers)]
    rotates = as_list(stated)
    if rotates is None or len(rotates) != layers:
        raise ModelConfigError(f"no_rope_layers must list {layers} layers, 0 or 1 for each")
    return [bool(entry) for entry in rotates]
