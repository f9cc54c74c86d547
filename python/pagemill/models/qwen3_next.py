"""Qwen3-Next, and Qwen3.5's text models: layers of the gated delta rule, every fourth with a gated
attention instead.

Weights as Qwen3's with 1 added to those of norms, and `self_attn.q_proj` with the rows of each
head's query and gate, or `linear_attn.*` (`layers.gated_delta`); in layers with experts `mlp.gate`
(the router), `mlp.experts.<i>` or `mlp.experts.{gate_up_proj,down_proj}` of all together,
`mlp.shared_expert` and `mlp.shared_expert_gate`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.gated_delta import DeltaShape, delta_layer
from pagemill.layers.linear import linear
from pagemill.layers.moe import Experts, gated_expert, moe
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import (
    Defaults,
    flag,
    layer_types,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing, sparse_by_step
from pagemill.models.mtp_layer import QWEN_MTP
from pagemill.models.state_space_keys import check_delta
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

# Of checkpoints with one tensor for all experts.
_LINEAR, _FULL = "linear_attention", "full_attention"


class Qwen3NextModel(Decoder):
    """One Qwen3-Next or Qwen3.5 model."""

    mtp = QWEN_MTP

    def __init__(self, config: Config) -> None:
        # Models with experts in all layers state no other size.
        size = config.get("moe_intermediate_size")
        config = Defaults(config, {"partial_rotary_factor": 0.25, "intermediate_size": size})
        super().__init__(config)
        layers = self.sizes.layers
        self.ignored = {**self.ignored, r"mtp\..*": "drafts alone use it (mtp)"}
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self._bias = flag(config, "attention_bias", False)
        self._types = layer_types(config, layers, (_LINEAR, _FULL)) or _by_interval(config, layers)
        self._delta = _read_delta(config, self.sizes.norm_eps)
        self._experts: Experts | None = None
        self._shared_size = 0
        self._is_sparse = sparse_by_step(config, layers)
        if config.get("num_experts"):
            self._experts = _read_experts(config, self.activation)
            self._shared_size = positive_int(config, "shared_expert_intermediate_size", 512)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        if self._types[layer] == _LINEAR:
            return delta_layer(weights, f"{prefix}.linear_attn", x, self._delta, layer)
        assert rotary is not None
        name = f"{prefix}.self_attn"
        out, dim = f"{name}.o_proj", self.sizes.head_dim
        shape = attention.divide(weights, self.sizes.attention(), out)

        def project(what: str, heads: int, width: int) -> Tensor:
            part = shape.features(heads)
            first, end = part.begin // dim * width, part.end // dim * width
            rows = Part(first, end, heads * width)
            row_shape = (rows.size // width, width)
            return linear(weights, f"{name}.{what}", x, row_shape, bias=self._bias, rows=rows)

        q, gate = ops.split(project("q_proj", shape.heads, 2 * dim), dim)
        k, v = project("k_proj", shape.kv_heads, dim), project("v_proj", shape.kv_heads, dim)
        q, k = rotary(
            self._norm(weights, f"{name}.q_norm", q), self._norm(weights, f"{name}.k_norm", k)
        )
        y = attention.attend(q, k, v, shape, f"kv{layer}", weights.kv_scales(name))
        y = ops.gated_activation(gate, y, ActivationKind.SIGMOID)
        return attention.output(weights, out, y, shape, x.width, bias=self._bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if self._experts is None or not self._is_sparse[layer]:
            return super().feed_forward(weights, layer, x)
        name = f"{self.prefix(layer)}.mlp"
        shared = gated_expert(
            weights, f"{name}.shared_expert", x, self._shared_size, self.activation
        )
        return ops.add(moe(weights, name, x, self._experts), shared)

    def _norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """Of each head."""
        return norm.rms_norm(weights, name, x, self.sizes.norm_eps, weight_offset=self.norm_offset)


def _by_interval(config: Config, layers: int) -> tuple[str, ...]:
    interval = positive_int(config, "full_attention_interval", 4)
    return tuple(_LINEAR if (layer + 1) % interval else _FULL for layer in range(layers))


def _read_delta(config: Config, eps: float) -> DeltaShape:
    return check_delta(
        DeltaShape(
            heads=positive_int(config, "linear_num_value_heads", 32),
            groups=positive_int(config, "linear_num_key_heads", 16),
            keys=positive_int(config, "linear_key_head_dim", 128),
            values=positive_int(config, "linear_value_head_dim", 128),
            taps=positive_int(config, "linear_conv_kernel_dim", 4),
            eps=eps,
            in_turn=flag(config, "linear_heads_in_turn", False),
        )
    )


def _read_experts(config: Config, kind: ActivationKind) -> Experts:
    count = positive_int(config, "num_experts")
    routing = read_routing(config, count, 10, renormalize=flag(config, "norm_topk_prob", True))
    return Experts(count, positive_int(config, "moe_intermediate_size", 512), kind, routing)
