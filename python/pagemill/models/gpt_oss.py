"""gpt-oss: every second layer has a window, a sink joins the softmax of each head, and all layers
have experts with biases, whose gates and factors are limited. OpenAI's privacy filter, which
classifies tokens: all layers have a window, in which a token attends to those behind it, too.

Weights: `model.layers.<i>.{input_layernorm, post_attention_layernorm, self_attn.{q,k,v,o}_proj,
self_attn.sinks, mlp.router}`, and `mlp.experts.{gate_up_proj, down_proj}` with `*_bias`, of all
experts together, transposed, and gate and up row by row in turn, or in MXFP4 (`*_blocks` and
`*_scales`); `model.{embed_tokens,norm}`, `lm_head`. GGUF files have
`mlp.experts.{gate,up,down}_proj` instead, neither transposed nor in turn. The filter has all gates
in front of all up rows, and `score` in place of the head.
"""

from __future__ import annotations

import functools

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.linear import linear
from pagemill.layers.moe import sum_of_ranks
from pagemill.layers.stack import EXPERTS, name_in_layer
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, flag, number, positive_int, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.ops import ActivationKind
from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.shard import Part, Stripe
from pagemill.ops.trace import Tensor

_ALPHA = 1.702  # of the gate's sigmoid, as QUICK_GELU has it
_GROUP = 32  # features that share a scale in MXFP4
_GATE, _UP = Stripe(0, 2), Stripe(1, 2)
# Those of the filter's configuration class: published checkpoints may leave some out.
_FILTER = {
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "sliding_window": 128,
    "tie_word_embeddings": False,
}


class GptOssModel(Decoder):
    """One gpt-oss model. A subclass says whether gate and up rows are `in_turn`."""

    in_turn = True

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.windows = windows_by_type(config, self.sizes.layers, pattern=2)
        bias = flag(config, "attention_bias", True)
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias, sinks="sinks")
        self._count = positive_int(config, "num_local_experts", 128)
        self._routing = read_routing(config, self._count, 4, renormalize=True)
        self._fused = flag(config, "gate_and_up_fused", True)
        self._limit = number(config, "swiglu_limit", 7.0, least=1e-3)
        if self.activation is not ActivationKind.SILU:
            raise ModelConfigError("hidden_act must be silu in this family")
        if number(config, "swiglu_alpha", _ALPHA) != _ALPHA:
            raise ModelConfigError(f"swiglu_alpha must be {_ALPHA} in this family")

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.mlp"
        logits = linear(weights, f"{name}.router", x, (self._count,), bias=True, dtype="f32")
        # The softmax of the chosen logits is that of all, divided by the sum of the chosen.
        first = weights.shard.experts(self._count).begin
        ids, shares = ops.moe_route(logits, self._routing, first=first)
        y = self._experts(weights, f"{name}.experts", x, name_in_layer(ids, EXPERTS))
        return sum_of_ranks(weights, ops.moe_combine(y, shares))

    def _experts(self, weights: Weights, name: str, x: Tensor, ids: Tensor) -> Tensor:
        """x [N, H], ids [N, choices] -> this rank's part of the result of each row's experts, [N,
        choices, H]."""
        count, inner, hidden = self._count, self.sizes.intermediate_size, x.width
        shard = weights.shard
        own, part = shard.experts(count), shard.expert_features(inner, _GROUP)
        vectors = functools.partial(weights.turned_vectors, matrices=own)

        def wide(stripe: Stripe) -> tuple[Tensor, Tensor]:
            fused, shape = f"{name}.gate_up_proj", (count, inner, hidden)
            if not self.in_turn:
                first, both = stripe.index * inner, 2 * inner
                rows = Part(first + part.begin, first + part.end, both)
                weight = weights.turned_stack(fused, (count, both, hidden), matrices=own, rows=rows)
                return weight, vectors(f"{fused}_bias", (count, both), part=rows)
            if not self._fused:
                module = "gate_proj" if stripe == _GATE else "up_proj"
                weight = weights.stack(name, module, shape, matrices=own, rows=part)
                return weight, vectors(f"{name}.{module}.bias", shape[:2], part=part)
            weight = weights.turned_stack(fused, shape, stripe=stripe, matrices=own, rows=part)
            return weight, vectors(f"{fused}_bias", shape[:2], stripe=stripe, part=part)

        (gate, gate_bias), (up, up_bias) = wide(_GATE), wide(_UP)
        gate, up = ops.grouped_linear(x, ids, gate, up, biases=(gate_bias, up_bias))
        gate, up = (
            weights.adapted_experts(
                self._adapted(name, stripe, own, part, hidden), ids, x, y, rows=part
            )
            for stripe, y in ((_GATE, gate), (_UP, up))
        )
        y = ops.gated_activation(
            gate, up, ActivationKind.QUICK_GELU, limit=self._limit, up_offset=1.0
        )
        shape = (count, hidden, inner)
        if self._fused:
            down = weights.turned_stack(f"{name}.down_proj", shape, matrices=own, columns=part)
        else:
            down = weights.stack(name, "down_proj", shape, matrices=own, columns=part)
        bias, bias_name = None, f"{name}.down_proj{'_' if self._fused else '.'}bias"
        if shard.whole_experts or shard.rank == 0:  # which adds it once to the sum
            bias = vectors(bias_name, (count, hidden))
        else:
            weights.claim(bias_name)
        (z,) = ops.grouped_linear(y, ids, down, biases=(bias,))
        rows = Part(0, hidden, hidden)
        layer = ExpertLayer(own, name, "down_proj", name, "down_proj", rows, inner)
        return weights.adapted_experts(layer, ids, y, z, columns=part)

    def _adapted(
        self, name: str, stripe: Stripe, experts: Part, part: Part, features: int
    ) -> ExpertLayer:
        """Gate or up as adapters know it: `part` of its rows, among those of both."""
        both = stripe.count * part.total
        if self.in_turn:
            turns = stripe.count
            rows = Part(turns * part.begin + stripe.index, turns * part.end, both)
        else:
            turns, first = 1, stripe.index * part.total
            rows = Part(first + part.begin, first + part.end, both)
        return ExpertLayer(
            experts=experts,
            container=name,
            module="gate_proj" if stripe == _GATE else "up_proj",
            owner=name,
            parameter="gate_up_proj",
            rows=rows,
            features=features,
            step=turns,
        )


class PrivacyFilterModel(GptOssModel):
    """One privacy filter of OpenAI."""

    both_ways = True
    in_turn = False

    def __init__(self, config: Config) -> None:
        super().__init__(Defaults(config, _FILTER))
        self.interleaved = True
        # Those at most so many tokens away.
        self.windows = (positive_int(self.config, "sliding_window") + 1,) * self.sizes.layers
