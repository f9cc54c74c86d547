"""Gemma 4 (text): Gemma 3 with heads of two sizes, values without weights of their own norm, layers
that attend to what an earlier one has stored, and an embedding for each layer.

Weights as Gemma 3's, whose norms hold the whole weight; `layer_scalar`; with embeddings for each
layer `per_layer_input_gate`, `per_layer_projection` and `post_per_layer_input_norm` in layers, and
`model.{embed_tokens_per_layer, per_layer_model_projection, per_layer_projection_norm}`; with
experts `router.{scale,proj,per_expert_scale}`, `experts.{gate_up_proj,down_proj}` and three more
norms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, PackedNames, choose, packed_experts
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Renamed,
    activation,
    flag,
    layer_types,
    make_rotary_table,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_EXPERTS = PackedNames(up="experts.gate_up_proj", down="experts.down_proj")


class Gemma4Model(Decoder):
    """One Gemma 4 text model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.layers\.\d+\.self_attn\.(k_proj|v_proj|k_norm)\.weight": (
            "the layer attends to what an earlier one has stored"
        ),
    }

    def __init__(self, config: Config) -> None:
        if config.get("use_bidirectional_attention") not in (None, "vision"):
            raise ModelConfigError("use_bidirectional_attention must be null or vision, of images")
        types = _layer_types(config)
        super().__init__(config, tied_by_default=True, layer_types=types)
        sizes = self.sizes
        window = positive_int(config, "sliding_window", 512)
        self._shapes = [
            _shape(config, sizes.attention(scale=1.0), layer, kind, window)
            for layer, kind in enumerate(types)
        ]
        dims = {(kind, shape.head_dim) for kind, shape in zip(types, self._shapes, strict=True)}
        tables = {(kind, dim): make_rotary_table(config, dim, kind) for kind, dim in dims}
        self.rotary = [
            tables[kind, shape.head_dim] for kind, shape in zip(types, self._shapes, strict=True)
        ]
        self._sources = _sources(types, int(number(config, "num_kv_shared_layers", 0, least=0)))
        self._double = flag(config, "use_double_wide_mlp", False)
        one_matrix = flag(config, "attention_k_eq_v", False)
        self._has_values = [not one_matrix or kind == SLIDING for kind in types]
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = sizes.hidden_size**0.5
        self.logits_cap = number(config, "final_logit_softcapping", 0.0, least=0.0)
        self._experts = _experts(config, self.activation)
        self._width = int(number(config, "hidden_size_per_layer_input", 256, least=0, most=2**20))
        self._vocab = positive_int(config, "vocab_size_per_layer_input", sizes.vocab_size)

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        start, layers = self.embed(weights, inputs), self.sizes.layers

        def make_layer(layer: int, x: Tensor) -> Tensor:
            x = self.layer(weights, layer, x, rotary[layer])
            if self._width:
                x = self._add_token(weights, layer, x, self._token(weights, layer, start, inputs))
            return ops.scale(x, weights.number(f"{self.prefix(layer)}.layer_scalar"))

        x = stack(weights, start, layers, make_layer)
        return self.norm(weights, self.names.norm, x)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        if self._experts is not None:
            y = self._add_experts(weights, prefix, x, y, self._experts)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name, source = f"{self.prefix(layer)}.self_attn", self._sources[layer]
        out, bias = f"{name}.o_proj", self.attention_parts.bias
        shape = attention.divide(weights, self._shapes[layer], out)

        def project(which: str, heads: int) -> Tensor:
            rows, dim = shape.features(heads), shape.head_dim
            row_shape = (rows.size // dim, dim)
            return linear(weights, f"{name}.{which}_proj", x, row_shape, bias=bias, rows=rows)

        q = self.norm(weights, f"{name}.q_norm", project("q", shape.heads))
        scales = weights.kv_scales(f"{self.prefix(source)}.self_attn")
        if source == layer:
            k = project("k", shape.kv_heads)
            v = project("v", shape.kv_heads) if self._has_values[layer] else k
            q, k = rotary(q, self.norm(weights, f"{name}.k_norm", k))
            v = norm.rms_norm(weights, "", v, self.sizes.norm_eps, weight=False)
            attended = attention.attend(q, k, v, shape, f"kv{layer}", scales)
        else:
            attended = attention.attend_again(rotary.queries(q), shape, f"kv{source}", scales)
        return attention.output(weights, out, attended, shape, x.width, bias=bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, shares = self.sizes.intermediate_size, self._sources[layer] != layer
        size *= 2 if self._double and shares else 1
        return mlp(weights, f"{self.prefix(layer)}.mlp", x, size, self.activation, self.mlp_parts)

    def _add_experts(
        self, weights: Weights, prefix: str, x: Tensor, y: Tensor, experts: Experts
    ) -> Tensor:
        """y, the result of the layer that every token has, plus that of the experts, each in its
        norm. Router and experts have norms of their own of the same x."""
        y = self.norm(weights, f"{prefix}.post_feedforward_layernorm_1", y)
        scale = weights.vector(f"{prefix}.router.scale", x.width)
        routed = ops.scale(ops.rms_norm(x, scale, eps=self.sizes.norm_eps), x.width**-0.5)
        factors = weights.vector(f"{prefix}.router.per_expert_scale", experts.count)
        chosen = choose(weights, f"{prefix}.router.proj", routed, experts, factors=factors)
        z = self.norm(weights, f"{prefix}.pre_feedforward_layernorm_2", x)
        z = packed_experts(weights, prefix, z, chosen, experts, _EXPERTS)
        return ops.add(y, self.norm(weights, f"{prefix}.post_feedforward_layernorm_2", z))

    def _token(self, weights: Weights, layer: int, start: Tensor, inputs: StepInputs) -> Tensor:
        """[T, width]: the token's embedding for a layer, half of it from that of the model."""
        width, total = self._width, self._width * self.sizes.layers
        part = Part(layer * width, (layer + 1) * width, total)
        table = weights.matrix(
            "model.embed_tokens_per_layer.weight", (self._vocab, total), columns=part
        )
        own = ops.embedding(inputs.token_ids, table, scale=width**0.5)
        name = "model.per_layer_model_projection"
        of_model = linear(weights, name, start, (width,), rows=part)
        of_model = ops.scale(of_model, self.sizes.hidden_size**-0.5)
        of_model = self.norm(weights, "model.per_layer_projection_norm", of_model)
        return ops.scale(ops.add(of_model, own), 2**-0.5)

    def _add_token(self, weights: Weights, layer: int, x: Tensor, token: Tensor) -> Tensor:
        """x plus what the layer makes of its embedding of the token."""
        prefix = self.prefix(layer)
        gate = linear(weights, f"{prefix}.per_layer_input_gate", x, (self._width,))
        y = ops.gated_activation(gate, token, self.activation)
        y = linear(weights, f"{prefix}.per_layer_projection", y, (x.width,))
        return ops.add(x, self.norm(weights, f"{prefix}.post_per_layer_input_norm", y))


def _experts(config: Config, kind: ActivationKind) -> Experts | None:
    """The experts beside the feed-forward layers, if there are such."""
    if not flag(config, "enable_moe_block", False):
        return None
    count, size = positive_int(config, "num_experts"), positive_int(config, "moe_intermediate_size")
    renamed = Renamed(config, {"num_experts_per_tok": "top_k_experts"})
    return Experts(count, size, kind, read_routing(renamed, count, 8, renormalize=True))


def _layer_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer; by default every sixth is full, and the last."""
    layers = positive_int(config, "num_hidden_layers")
    types = layer_types(config, layers, (SLIDING, FULL))
    types = types or tuple(SLIDING if (layer + 1) % 6 else FULL for layer in range(layers))
    return (*types[:-1], FULL)


def _shape(
    config: Config, shape: AttentionShape, layer: int, kind: str, window: int
) -> AttentionShape:
    """The heads of a layer: full ones have other sizes, listed for each layer or for all."""
    if kind == SLIDING:
        return replace(shape, window=window)
    listed: object = config.get("per_layer_config")
    if listed is not None:
        if not isinstance(listed, Mapping):
            raise ModelConfigError("the configuration needs per_layer_config to be an object")
        own: object = cast("Mapping[str, Any]", listed).get(str(layer), {})
        if not isinstance(own, Mapping):
            raise ModelConfigError(f"per_layer_config of layer {layer} must be an object")
        sizes = cast("Mapping[str, Any]", own)
        dim = positive_int(sizes, "head_dim", shape.head_dim)
        heads = positive_int(sizes, "num_key_value_heads", shape.kv_heads)
    else:
        dim = positive_int(config, "global_head_dim", 512)
        heads = shape.kv_heads
        if flag(config, "attention_k_eq_v", False):
            heads = positive_int(config, "num_global_key_value_heads", heads)
    if shape.heads % heads:
        raise ModelConfigError(f"{shape.heads} heads cannot share {heads} key-value heads")
    return replace(shape, head_dim=dim, kv_heads=heads)


def _sources(types: Sequence[str], shared: int) -> list[int]:
    """The layer whose keys and values each layer attends to: its own, or, of the last `shared`
    layers, those of the last one before them that is of the same kind."""
    first = len(types) - shared
    if first < 1 or not set(types[first:]) <= set(types[:first]):
        raise ModelConfigError(f"num_kv_shared_layers={shared} leaves no layer of a kind to share")
    last = {kind: layer for layer, kind in enumerate(types[:first])}
    return [layer if layer < first else last[kind] for layer, kind in enumerate(types)]
