"""T5Gemma: an encoder and a decoder of Gemma 2's layers, each of sizes of its own.

Weights: `model.encoder.` and `model.decoder.`, each with `embed_tokens`, `norm` and `layers.<i>.{
pre_self_attn_layernorm, self_attn.{q,k,v,o}_proj, post_self_attn_layernorm,
pre_feedforward_layernorm, mlp.{gate,up,down}_proj, post_feedforward_layernorm}`, in the decoder
also `pre_cross_attn_layernorm`, `cross_attn.{q,k,v,o}_proj` and `post_cross_attn_layernorm`;
`lm_head.out_proj` unless tied. Norm weights are stored minus 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.layers import attention
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary, bind_rotaries
from pagemill.layers.stack import stack
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    Defaults,
    activation,
    flag,
    inner_config,
    number,
    refuse,
    windows_by_type,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.encoder_decoder.text_front import text_traits
from pagemill.ops.trace import Cache, Tensor

# Those of the configuration's class: published checkpoints may leave some out.
_PART = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "pad_token_id": 0,
    "bos_token_id": 2,
}
# Likewise, but null means that there is no cap.
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


class _Part(Decoder):
    """Gemma 2's layers of an encoder or a decoder."""

    def __init__(self, config: Config, part: str) -> None:
        base = f"model.{part}"
        self.names = DecoderNames(
            f"{base}.embed_tokens", f"{base}.layers", f"{base}.norm", "lm_head.out_proj"
        )
        inner: Config = inner_config(config, part) if config.get(part) is not None else {}
        tied = flag(config, "tie_word_embeddings", True)
        own = Defaults({**_CAPS, **inner, "tie_word_embeddings": tied}, _PART)
        refuse(own, "attention_bias")
        super().__init__(own)
        self.windows = windows_by_type(own, self.sizes.layers, pattern=2)
        self.attention_scale = number(own, "query_pre_attn_scalar", 256, least=1e-6) ** -0.5
        self.soft_cap = number(own, "attn_logit_softcapping", 0.0, least=0.0)
        self.logits_cap = number(own, "final_logit_softcapping", 0.0, least=0.0)
        self.norm_offset = 1.0
        self.activation = activation(own, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = self.sizes.hidden_size**0.5

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.pre_self_attn_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_self_attn_layernorm", y))
        return self.fed_forward(weights, layer, x)

    def fed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        """x [T, H] and what the feed-forward part of a layer adds."""
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))


class T5GemmaModel:
    """One T5Gemma model."""

    ignored: Mapping[str, str] = {r"lm_head\.out_proj\.weight": "the decoder's embedding, if tied"}

    def __init__(self, config: Config) -> None:
        self._encoder, self._text = _Part(config, "encoder"), _Part(config, "decoder")
        self._encoder.both_ways = True
        # A token sees those whose distance is the window, too.
        self._encoder.windows = [window + 1 if window else 0 for window in self._encoder.windows]
        vocab = self._text.sizes.vocab_size
        if self._encoder.sizes.vocab_size != vocab:
            raise ModelConfigError(
                f"the encoder has a vocabulary of {self._encoder.sizes.vocab_size} tokens, and the"
                f" decoder one of {vocab}; they must be the same"
            )
        own = self._text.config
        defaults = {"decoder_start_token_id": own["bos_token_id"]}
        self._config = Defaults({"pad_token_id": own["pad_token_id"], **config}, defaults)
        # The cache of a layer has the encoder's rows, too, so it has no window.
        self._positions = min([self._text.sizes.max_positions, *filter(None, self._text.windows)])
        self._text.windows = (0,) * self._text.sizes.layers

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        encoder, text = self._encoder.sizes, self._text.sizes
        traits = text_traits(
            self._config,
            text.vocab_size,
            encoder.hidden_size,
            encoder.max_positions,
            self._positions,
        )
        return replace(traits, hidden_size=text.hidden_size)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._encoder.hidden(weights, StepInputs(inputs.media.rows, inputs.positions))

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        assert inputs.media is not None and inputs.text_rows is not None
        assert inputs.decoder_positions is not None
        text, media = self._text, inputs.media
        rotary = bind_rotaries(
            weights, text.rotary, inputs.decoder_positions, interleaved=text.interleaved
        )
        shape = text.sizes.attention(scale=text.attention_scale, soft_cap=text.soft_cap)
        shape = attention.divide(weights, shape, f"{text.prefix(0)}.self_attn.o_proj")
        queries = DecoderRows.of(
            weights,
            inputs.text_rows,
            media.tokens,
            inputs.token_ids,
            shape.features(shape.heads).size,
        )
        layers = _DecoderLayers(text, shape, queries, media.rows)

        def layer(index: int, x: Tensor) -> Tensor:
            return layers.layer(weights, index, x, rotary[index])

        x = text.embed(weights, replace(inputs, media=None))
        hidden = stack(weights, ops.select_rows(x, queries.text), text.sizes.layers, layer)
        return ops.scatter_rows(x, text.norm(weights, text.names.norm, hidden), queries.text)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._text.logits(weights, rows)


class _DecoderLayers:
    """The decoder's layers in a step: `queries` are its rows, `encoded` [media_rows, H] those of
    the encoder."""

    def __init__(
        self, text: _Part, shape: AttentionShape, queries: DecoderRows, encoded: Tensor
    ) -> None:
        self._text, self._shape = text, shape
        self._queries, self._encoded = queries, encoded

    def layer(self, weights: Weights, index: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [text_rows, H] -> [text_rows, H]."""
        text, prefix = self._text, self._text.prefix(index)
        assert rotary is not None
        own, cross = f"{prefix}.self_attn", f"{prefix}.cross_attn"
        y = text.norm(weights, f"{prefix}.pre_self_attn_layernorm", x)
        keys = self._queries.with_width(weights, self._features(self._shape.kv_heads))
        # Tokens of media turn, too, and are replaced.
        q, k = rotary(
            self._queries.spread(self._project(weights, f"{own}.q_proj", y)),
            keys.spread(self._project(weights, f"{own}.k_proj", y)),
        )
        k_encoded, v_encoded = (
            self._project(weights, f"{cross}.{name}", self._encoded)
            for name in ("k_proj", "v_proj")
        )
        k = ops.scatter_rows(k, k_encoded, keys.media)
        v = keys.joined(self._project(weights, f"{own}.v_proj", y), v_encoded)
        dims = (self._features(self._shape.kv_heads) // self._shape.head_dim, self._shape.head_dim)
        cache = weights.trace.cache(f"kv{index}", weights.trace.kv_group(), dims)
        ops.kv_write(k, v, cache)
        y = self._attended(weights, own, q, cache, cross=False)
        x = ops.add(x, text.norm(weights, f"{prefix}.post_self_attn_layernorm", y))

        y = text.norm(weights, f"{prefix}.pre_cross_attn_layernorm", x)
        q = self._queries.spread(self._project(weights, f"{cross}.q_proj", y))
        y = self._attended(weights, cross, q, cache, cross=True)
        x = ops.add(x, text.norm(weights, f"{prefix}.post_cross_attn_layernorm", y))
        return text.fed_forward(weights, index, x)

    def _features(self, heads: int) -> int:
        return self._shape.features(heads).size

    def _project(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [N, H] -> [N, own heads, head_dim]."""
        shape = self._shape
        part = shape.features(shape.heads if name.endswith("q_proj") else shape.kv_heads)
        return linear(weights, name, x, (part.size // shape.head_dim, shape.head_dim), rows=part)

    def _attended(
        self, weights: Weights, name: str, q: Tensor, cache: Cache, *, cross: bool
    ) -> Tensor:
        """q [T, own heads, head_dim] -> [text_rows, H]."""
        attended = ops.paged_attention(
            q,
            cache,
            scale=self._shape.scale,
            encoder_keys=cross,
            decoder_keys=not cross,
            soft_cap=self._shape.soft_cap,
        )
        attended = ops.select_rows(attended, self._queries.text)
        hidden = self._text.sizes.hidden_size
        return attention.output(weights, f"{name}.o_proj", attended, self._shape, hidden)
