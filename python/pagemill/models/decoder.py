"""The decoder that families start from: Llama's layers, of which a family says what differs.

    class MyModel(Decoder):
        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.attention_parts = AttentionParts(qk_norm=QkNorm(self.sizes.norm_eps))
            self.experts = read_grouped_experts(config, self.activation, count=64, size=1536)

A family inherits from this class and from no other family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, rotary_attention
from pagemill.layers.latent import LatentShape, latent_attention
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import add_rows, side_by_side
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary, RotaryTable, bind_rotaries
from pagemill.layers.stack import stack
from pagemill.models.base import (
    IGNORED_IN_DECODERS,
    Config,
    MediaInputs,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    DecoderSizes,
    activation,
    flag,
    has_positions,
    make_rotary_table,
)
from pagemill.models.mtp_layer import MtpLayer
from pagemill.ops.trace import Tensor

_MAX_LAYERS_BEHIND = 16


@dataclass(frozen=True, slots=True)
class DecoderNames:
    """The modules around the layers, what is in front of a layer's number, the two norms and two
    branches of a layer, and the module of learned positions, if there is one."""

    embedding: str = "model.embed_tokens"
    layers: str = "model.layers"
    norm: str = "model.norm"
    head: str = "lm_head"
    attention_norm: str = "input_layernorm"
    attention: str = "self_attn"
    feed_forward_norm: str = "post_attention_layernorm"
    feed_forward: str = "mlp"
    positions: str | None = None


class Decoder:
    """A `Model` (base.py). Its constructor reads Llama's configuration; a family's changes what
    differs, in these attributes and methods:

    - `config`: the configuration that it was made of.
    - `rotary`: the table of each layer, None if its keys have no positions; `interleaved`: how its
      pairs lie; `windows`: the window of each layer, 0 = full.
    - `both_ways`: tokens attend to those behind them, too, and the model makes vectors, no text.
    - `attention_scale` of scores, None for 1 / sqrt(head_dim); `soft_cap` of scores, 0 for none;
      `attention_parts`: biases, norms and names of the attention; `latent`: its shape if it is one
      over latents.
    - `activation` and `mlp_parts`: names and biases of the feed-forward layers; `experts` in place
      of those that are marked in `is_sparse`, by default all; `parallel`: they read the same norm
      as the attention; `parallel_norms`: they read another norm of the same x.
    - `embedding_scale`, `residual_scale` and `logits_scale` multiply embeddings, what a branch
      adds, and logits; `scales_media`: also embeddings that take the place of those of tokens, as
      `inputs_embeds` of `transformers`; `added_behind`: the layers behind which further results of
      a tower are added, by default the first ones; `logits_cap` bounds logits to cap * tanh(logit /
      cap), 0 leaves them; `head_bias`.
    - `norm_offset` is added to the weights of norms; `layer_norms`: norms subtract the mean, too,
      and add a bias if they have a `norm_bias`.
    - `first_position`: the row of the position 0 in a table of learned positions.
    - `mtp`: where checkpoints have a layer that predicts a further token.
    - `embed`, `norm`, `attention`, `feed_forward`: the parts of a layer; `layer`: how they are
      connected; `mtp_layer`: the layer of `mtp`, if it is none of `layer`.
    """

    ignored: Mapping[str, str] = IGNORED_IN_DECODERS
    names: DecoderNames = DecoderNames()
    mtp: MtpLayer | None = None
    classifier_pooling = "last"
    both_ways = False
    attention_scale: float | None = None
    soft_cap = 0.0
    latent: LatentShape | None = None
    experts: Experts | None = None
    parallel = False
    parallel_norms = False
    norm_offset = 0.0
    layer_norms = False
    norm_bias = True
    first_position = 0
    embedding_scale = 1.0
    scales_media = False
    added_behind: Sequence[int] | None = None
    residual_scale = 1.0
    logits_scale = 1.0
    logits_cap = 0.0
    head_bias = False

    def __init__(
        self,
        config: Config,
        *,
        tied_by_default: bool = False,
        eps: tuple[str, float] = ("rms_norm_eps", 1e-6),
        mlp_ratio: int | None = None,
        rotary_dim: int | None = None,
        layer_types: Sequence[str] | None = None,
    ) -> None:
        """`eps` is the key of what norms add to the variance, and its default; `mlp_ratio` times
        the hidden size is the intermediate size if none is stated; `rotary_dim` is the width of
        what rotates, by default the head's; `layer_types` those of each layer if their
        rotary parameters differ.

        Raises:
            ModelConfigError: a key is missing, or the keys do not fit each other.
        """
        self.config = config
        self.sizes = DecoderSizes.read(
            config, tied_by_default=tied_by_default, eps=eps, mlp_ratio=mlp_ratio
        )
        self.ignored = dict(self.ignored) | _layers_behind(
            config, self.names.layers, self.sizes.layers
        )
        dim = rotary_dim or self.sizes.head_dim
        types = layer_types or (None,) * self.sizes.layers
        tables = {
            kind: make_rotary_table(config, dim, kind) if has_positions(config, kind) else None
            for kind in dict.fromkeys(types)
        }
        self.rotary: Sequence[RotaryTable | None] = [tables[kind] for kind in types]
        self.interleaved = flag(config, "rope_interleaved", False)
        self.windows: Sequence[int] = (0,) * self.sizes.layers
        bias = flag(config, "attention_bias", False)
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias)
        self.activation = activation(config, "hidden_act", "silu")
        self.mlp_parts = MlpParts(bias=flag(config, "mlp_bias", False))
        self.is_sparse: Sequence[bool] = (True,) * self.sizes.layers

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def base_prefix(self) -> str:
        base, dot, _ = self.names.embedding.partition(".")
        return base + dot if dot else ""

    @property
    def traits(self) -> ModelTraits:
        traits = self.sizes.traits
        return replace(traits, causal=False, generates=False) if self.both_ways else traits

    def prefix(self, layer: int) -> str:
        """The name in front of the weights of layer number `layer`."""
        return f"{self.names.layers}.{layer}"

    def rotary_in_windows(self) -> Sequence[RotaryTable | None]:
        """`rotary` for a family whose full layers have no positions."""
        layers = zip(self.rotary, self.windows, strict=True)
        return [table if window else None for table, window in layers]

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        """Token ids, and embeddings in their place -> [T, H]: what the first layer reads."""
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        name, scale = self.names.embedding, self.embedding_scale
        x = embedding.embedding(weights, name, inputs.token_ids, table, scale=scale)
        x = inputs.with_media(x, scale if self.scales_media else 1.0)
        if self.names.positions is None:
            return x
        name, count, first = self.names.positions, self.sizes.max_positions, self.first_position
        return embedding.add_positions(weights, name, x, inputs.positions, count, first=first)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [T, H] normalized by the norm `name`, of a layer or the final one."""
        eps, offset = self.sizes.norm_eps, self.norm_offset
        if self.layer_norms:
            return norm.layer_norm(weights, name, x, eps, weight_offset=offset, bias=self.norm_bias)
        return norm.rms_norm(weights, name, x, eps, weight_offset=offset)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, H] -> [T, H]: the attention of a layer."""
        name, cache = f"{self.prefix(layer)}.{self.names.attention}", f"kv{layer}"
        parts = self.attention_parts
        if self.latent is not None:
            return latent_attention(weights, name, x, self.latent, rotary, cache, bias=parts.bias)
        shape = self.sizes.attention(
            scale=self.attention_scale, window=self.windows[layer], soft_cap=self.soft_cap
        )
        shape = replace(shape, both_ways=self.both_ways)
        return rotary_attention(weights, name, x, shape, rotary, cache, parts)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        """x [T, H] -> [T, H]: the feed-forward part of a layer."""
        name = f"{self.prefix(layer)}.{self.names.feed_forward}"
        if self.experts is not None and self.is_sparse[layer]:
            return moe(weights, name, x, self.experts)
        size = self.sizes.intermediate_size
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, H] -> [T, H]: a norm in front of each branch, which is added."""
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.{self.names.attention_norm}", x)
        attended = self.add(x, self.attention(weights, layer, y, rotary))
        if not self.parallel:
            x = x if self.parallel_norms else attended
            y = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
        return self.add(attended, self.feed_forward(weights, layer, y))

    def mtp_layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, H] -> [T, H]: the layer of `mtp`, as number `layer` of a model."""
        return self.layer(weights, layer, x, rotary)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """x plus what a branch adds."""
        return ops.add(x, ops.scale(branch, self.residual_scale))

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = bind_rotaries(weights, self.rotary, inputs.positions, interleaved=self.interleaved)
        return self.hidden_by(weights, inputs, rotary)

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        """As `hidden`, with these rotary embeddings, one for each layer."""
        media, added = inputs.media, list[Tensor]()
        if media is not None:
            embeddings, *added = side_by_side(media.rows, self.sizes.hidden_size)
            inputs = replace(inputs, media=MediaInputs(embeddings, media.tokens))
        x = self.embed(weights, inputs)
        behind = range(len(added)) if self.added_behind is None else self.added_behind
        added_by_layer = dict(zip(behind, added, strict=False))

        def layer(index: int, x: Tensor) -> Tensor:
            x = self.layer(weights, index, x, rotary[index])
            if media is None or index not in added_by_layer:
                return x
            return add_rows(x, added_by_layer[index], media.tokens)

        x = stack(weights, x, self.sizes.layers, layer)
        return self.norm(weights, self.names.norm, x)

    @property
    def _head(self) -> str:
        return self.names.embedding if self.sizes.tied else self.names.head

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        x = ops.scale(rows, self.logits_scale)
        size, names = self.sizes.vocab_size, self.names
        y = embedding.logits(weights, x, size, self._head, bias=self.head_bias, head=names.head)
        if not self.logits_cap:
            return y
        bounded = ops.activation(ops.scale(y, 1 / self.logits_cap), ops.ActivationKind.TANH)
        return ops.scale(bounded, self.logits_cap)

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        if self.head_bias or self.logits_cap:
            raise ModelConfigError("classifier_from_token: biases or a cap of logits are not added")
        shape = (self.sizes.vocab_size, self.sizes.hidden_size)
        matrix = weights.combined_rows(f"{self._head}.weight", shape, sums)
        return ops.linear(ops.scale(rows, self.logits_scale), matrix, dtype="f32")

    def before_pooling(self, weights: Weights, hidden: Tensor) -> Tensor:
        del weights
        return hidden

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return linear(weights, "score", rows, (labels,), dtype="f32")

    def classify_tokens(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        if weights.has("score.2.weight"):  # reward models of Qwen2
            x = linear(weights, "score.0", rows, (rows.width,), bias=True)
            x = ops.activation(x, ops.ActivationKind.RELU)
            return linear(weights, "score.2", x, (labels,), bias=True, dtype="f32")
        return linear(weights, "score", rows, (labels,), bias=True, dtype="f32")


def _layers_behind(config: Config, name: str, layers: int) -> dict[str, str]:
    """The pattern of the layers that a checkpoint has behind its `layers`, to predict further
    tokens, and why the model does not use them."""
    count = config.get("num_nextn_predict_layers")
    if type(count) is not int or not 0 < count <= _MAX_LAYERS_BEHIND:
        return {}
    numbers = "|".join(str(layers + i) for i in range(count))
    return {rf"{re.escape(name)}\.({numbers})\..*": "drafts alone use it (mtp)"}
