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
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.mlp import mlp
from pagemill.layers.moe import Experts, PackedNames, choose, packed_experts
from pagemill.layers.rotary import Rotary
from pagemill.layers.shared_kv import kv_sources, shared_kv_attention
from pagemill.layers.stack import stack
from pagemill.layers.token_layers import TokenLayers
from pagemill.models.base import (
    IGNORED_IN_DECODERS,
    Config,
    MediaInputs,
    ModelConfigError,
    StepInputs,
)
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    Renamed,
    activation,
    flag,
    layer_count,
    layer_types,
    make_rotary_table,
    number,
    positive_int,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.ops import ActivationKind
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
        shared = int(number(config, "num_kv_shared_layers", 0, least=0, most=2**20))
        try:
            self._sources = kv_sources(types, shared)
        except ValueError as error:
            raise ModelConfigError(str(error)) from error
        self._double = flag(config, "use_double_wide_mlp", False)
        one_matrix = flag(config, "attention_k_eq_v", False)
        self._has_values = [not one_matrix or kind == SLIDING for kind in types]
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = sizes.hidden_size**0.5
        self.logits_cap = number(config, "final_logit_softcapping", 0.0, least=0.0)
        self._experts = _experts(config, self.activation)
        width = int(number(config, "hidden_size_per_layer_input", 256, least=0, most=2**20))
        vocab = positive_int(config, "vocab_size_per_layer_input", sizes.vocab_size)
        self._tokens = TokenLayers(width, vocab, sizes.layers, sizes.norm_eps)

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        start, layers, tokens = self.embed(weights, inputs), self.sizes.layers, self._tokens
        media = inputs.media if tokens.width else None
        own = None if media is None else self._embeddings_of_media(weights, media)

        def make_layer(layer: int, x: Tensor) -> Tensor:
            x = self.layer(weights, layer, x, rotary[layer])
            if tokens.width:
                of_media = None if media is None or own is None else (own[layer], media.tokens)
                token = tokens.embedding(weights, layer, inputs.token_ids, start, of_media)
                y = tokens.branch(weights, self.prefix(layer), x, token, self.activation)
                x = ops.add(x, y)
            return ops.scale(x, weights.number(f"{self.prefix(layer)}.layer_scalar"))

        x = stack(weights, start, layers, make_layer)
        return self.norm(weights, self.names.norm, x)

    def _embeddings_of_media(self, weights: Weights, media: MediaInputs) -> list[Tensor]:
        """For each layer, those of padding, once for each token of media."""
        last = self._tokens.vocab - 1
        padding = int(number(self.config, "pad_token_id", 0, least=0, most=last))
        return self._tokens.of_one(weights, padding, media.tokens)

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
        source = self._sources[layer]
        return shared_kv_attention(
            weights,
            (f"{self.prefix(layer)}.self_attn", f"{self.prefix(source)}.self_attn"),
            x,
            self._shapes[layer],
            rotary,
            (f"kv{layer}", f"kv{source}"),
            eps=self.sizes.norm_eps,
            bias=self.attention_parts.bias,
            values=self._has_values[layer],
        )

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


def _experts(config: Config, kind: ActivationKind) -> Experts | None:
    """The experts beside the feed-forward layers, if there are such."""
    if not flag(config, "enable_moe_block", False):
        return None
    count, size = positive_int(config, "num_experts"), positive_int(config, "moe_intermediate_size")
    renamed = Renamed(config, {"num_experts_per_tok": "top_k_experts"})
    return Experts(count, size, kind, read_routing(renamed, count, 8, renormalize=True))


def _layer_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer; by default every sixth is full, and the last."""
    layers = layer_count(config)
    types = layer_types(config, layers, (SLIDING, FULL))
    types = types or tuple(SLIDING if (layer + 1) % 6 else FULL for layer in range(layers))
    return (*types[:-1], FULL)


def _shape(
    config: Config, shape: AttentionShape, layer: int, kind: str, window: int
) -> AttentionShape:
    """The heads of a layer: full ones have other sizes, listed for each layer or for all, and their
    tokens see none behind them."""
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
    return replace(shape, head_dim=dim, kv_heads=heads, sees_items=False)
