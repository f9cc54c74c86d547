"""OPT: learned positions, layer norms, ReLU, biases everywhere. Norms lie in front of branches, or
(350M) behind what branches are added to, and embeddings may be narrower than layers.

Weights: `model.decoder.layers.<i>.{self_attn_layer_norm, self_attn.{q,k,v}_proj,
self_attn.out_proj, final_layer_norm, fc1, fc2}`, `model.decoder.{embed_tokens, embed_positions,
final_layer_norm}`, and `model.decoder.project_{in,out}` if embeddings are narrower; the head is
tied. Rows of embed_positions begin at position -2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import Config, ModelTraits, StepInputs
from pagemill.models.config_keys import Renamed, activation, flag, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_FIRST_POSITION = 2  # row of embed_positions


class OptModel(Decoder):
    """One OPT model."""

    names = DecoderNames(
        embedding="model.decoder.embed_tokens",
        layers="model.decoder.layers",
        norm="model.decoder.final_layer_norm",
        attention_norm="self_attn_layer_norm",
        feed_forward_norm="final_layer_norm",
    )

    def __init__(self, config: Config) -> None:
        config = Renamed(config, {"intermediate_size": "ffn_dim"})
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self._norms_before = flag(config, "do_layer_norm_before", True)
        self._width = positive_int(config, "word_embed_proj_dim", self.sizes.hidden_size)
        self.rotary = (None,) * self.sizes.layers
        bias = flag(config, "enable_bias", True)
        self.attention_parts = AttentionParts(output="out_proj", bias=bias, output_bias=bias)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=bias)
        self.activation = activation(config, "activation_function", "relu")

    @property
    def traits(self) -> ModelTraits:
        return replace(super().traits, hidden_size=self._width)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self._width)
        x = embedding.embedding(weights, self.names.embedding, inputs.token_ids, table)
        x = inputs.with_media(x)
        if self._width != self.sizes.hidden_size:
            x = linear(weights, "model.decoder.project_in", x, (self.sizes.hidden_size,))
        return embedding.add_positions(
            weights,
            "model.decoder.embed_positions",
            x,
            inputs.positions,
            self.sizes.max_positions,
            first=_FIRST_POSITION,
        )

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        x = self.embed(weights, inputs)
        x = stack(weights, x, self.sizes.layers, lambda i, x: self.layer(weights, i, x, rotary[i]))
        if self._norms_before:
            x = self.norm(weights, self.names.norm, x)
        if self._width != self.sizes.hidden_size:
            x = linear(weights, "model.decoder.project_out", x, (self._width,))
        return x

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if self._norms_before:
            return super().layer(weights, layer, x, rotary)
        prefix, names = self.prefix(layer), self.names
        x = self.add(x, self.attention(weights, layer, x, rotary))
        x = self.norm(weights, f"{prefix}.{names.attention_norm}", x)
        x = self.add(x, self.feed_forward(weights, layer, x))
        return self.norm(weights, f"{prefix}.{names.feed_forward_norm}", x)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, name = self.sizes.intermediate_size, self.prefix(layer)
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)
