"""T5, Flan-T5, mT5, UMT5 and LongT5: the encoder of encoders/t5.py, and a decoder of the same kind.

The first layer of each has the biases by distance of all its layers; in UMT5 each layer has its
own. The attention to the encoder's rows has none. Weights: `shared`, `encoder.`,
`decoder.block.<i>.layer.0.{layer_norm, SelfAttention.{q,k,v,o,relative_attention_bias}}`,
`.layer.1.{layer_norm, EncDecAttention.{q,k,v,o}}`, `.layer.2.{layer_norm, DenseReluDense.{wi,wo}}`,
or `wi_0` and `wi_1` with gates, `decoder.final_layer_norm`, `lm_head` unless tied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pagemill import ops
from pagemill.layers import attention, embedding
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows, attend
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.stack import stack
from pagemill.models.base import Config, EncoderInputs, ModelTraits, StepInputs
from pagemill.models.config_keys import flag, layer_count
from pagemill.models.encoder_decoder.text_front import text_traits
from pagemill.models.encoders.distance_buckets import distance_biases
from pagemill.models.encoders.t5 import LongT5Model, T5Model
from pagemill.ops.trace import Tensor

_BIAS = "layer.0.SelfAttention.relative_attention_bias.weight"
_BLOCKS = "decoder.block"


class T5DecoderModel:
    """One T5 model."""

    ignored: Mapping[str, str] = {
        r"(encoder|decoder)\.embed_tokens\.weight": "the shared embedding",
        r"decoder\..*\.EncDecAttention\.relative_attention_bias\.weight": "not used",
    }
    encoder_class: type[T5Model] = T5Model

    def __init__(self, config: Config) -> None:
        self._config = config
        self._encoder = self.encoder_class(config)
        sizes = self._encoder.sizes
        self._layers = layer_count(config, "num_decoder_layers", sizes.layers)
        self._shape = AttentionShape(sizes.heads, sizes.heads, sizes.head_dim, scale=1.0)
        self._scaled = self.scales_outputs(config)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def scales_outputs(self, config: Config) -> bool:
        """Whether what the head reads is divided by the root of its width."""
        tied = flag(config, "tie_word_embeddings", True)
        return flag(config, "scale_decoder_outputs", tied)

    @property
    def traits(self) -> ModelTraits:
        sizes = self._encoder.sizes
        positions = sizes.max_positions
        return text_traits(self._config, sizes.vocab_size, sizes.hidden_size, positions, positions)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._encoder.hidden(weights, StepInputs(inputs.media.rows, inputs.positions))

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        assert inputs.media is not None and inputs.text_rows is not None
        media, text = inputs.media, inputs.text_rows
        shape = attention.divide(weights, self._shape, f"{_BLOCKS}.0.layer.0.SelfAttention.o")
        width = shape.features(shape.heads).size
        rows = DecoderRows.of(weights, text, media.tokens, inputs.token_ids, width)

        def layer(index: int, x: Tensor) -> Tensor:
            return self._layer(weights, index, x, media.rows, rows, shape)

        x = self._encoder.embed(weights, inputs)
        hidden = stack(weights, ops.select_rows(x, text), self._layers, layer)
        hidden = self._encoder.norm(weights, "decoder.final_layer_norm", hidden)
        return ops.scatter_rows(x, hidden, text)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        sizes = self._encoder.sizes
        if self._scaled:
            rows = ops.scale(rows, sizes.hidden_size**-0.5)
        name = "lm_head" if weights.has("lm_head.weight") else "shared"
        return embedding.logits(weights, rows, sizes.vocab_size, name)

    def _layer(
        self,
        weights: Weights,
        index: int,
        x: Tensor,
        encoded: Tensor,
        rows: DecoderRows,
        shape: AttentionShape,
    ) -> Tensor:
        """x [text_rows, H], encoded [media_rows, H] -> [text_rows, H]."""
        prefix, part, width = f"{_BLOCKS}.{index}", shape.features(shape.heads), x.width
        heads = (part.size // shape.head_dim, shape.head_dim)
        own, cross = f"{prefix}.layer.0.SelfAttention", f"{prefix}.layer.1.EncDecAttention"

        def normalized(layer: int) -> Tensor:
            return self._encoder.norm(weights, f"{prefix}.layer.{layer}.layer_norm", x)

        def project(name: str, of: Tensor) -> Tensor:
            return linear(weights, name, of, heads, rows=part)

        y = normalized(0)
        k = rows.joined(project(f"{own}.k", y), project(f"{cross}.k", encoded))
        v = rows.joined(project(f"{own}.v", y), project(f"{cross}.v", encoded))
        cache = weights.trace.cache(f"kv{index}", weights.trace.kv_group(), heads)
        ops.kv_write(k, v, cache)
        biases = self._biases(weights, index, shape)
        attended = attend(rows, project(f"{own}.q", y), cache, shape.scale, biases=biases)
        x = ops.add(x, attention.output(weights, f"{own}.o", attended, shape, width))

        q = project(f"{cross}.q", normalized(1))
        attended = attend(rows, q, cache, shape.scale, cross=True)
        x = ops.add(x, attention.output(weights, f"{cross}.o", attended, shape, width))
        return ops.add(x, self._feed_forward(weights, f"{prefix}.layer.2", normalized(2)))

    def _biases(self, weights: Weights, index: int, shape: AttentionShape) -> Tensor:
        name = f"{_BLOCKS}.{index}.{_BIAS}"
        if not weights.has(name):
            name = f"{_BLOCKS}.0.{_BIAS}"
        buckets, reach = self._encoder.buckets, self._encoder.reach
        return distance_biases(weights, name, shape, buckets, reach, causal=True)

    def _feed_forward(self, weights: Weights, prefix: str, x: Tensor) -> Tensor:
        encoder = self._encoder
        up = ("wi_0", "wi_1") if encoder.gated else ("wi",)
        parts = MlpParts(up=up, down="wo", gated=encoder.gated)
        size, name = encoder.sizes.intermediate_size, f"{prefix}.DenseReluDense"
        return mlp(weights, name, x, size, encoder.activation, parts)


class MT5Model(T5DecoderModel):
    """mT5, whose head was trained without the factor, whatever its configuration says."""

    def scales_outputs(self, config: Config) -> bool:
        return False


class LongT5DecoderModel(T5DecoderModel):
    """LongT5, whose encoder's tokens attend to their neighbours."""

    encoder_class = LongT5Model
