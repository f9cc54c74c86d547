"""Idefics2: SigLIP's vision tower for images of any size, a projector, a resampler whose learned
queries attend to the patches and to each other, and Mistral.

Weights: `vision_model.` (idefics_vision.py), `connector.modality_projection.{gate,up,down}_proj`,
`connector.perceiver_resampler.{latents, norm}`, in its layer i `layers.<i>.{input_latents_norm,
input_context_norm, self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{gate,up,down}_proj}`,
and `text_model.` (mistral.py), all behind `model.`, with `lm_head` beside it.

An image may be divided into four quarters, with the whole image behind them. Each attends to itself
alone, and has as many tokens as there are queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaPart,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import (
    Defaults,
    activation,
    epsilon,
    inner_config,
    layer_count,
    positive_int,
    token_id,
)
from pagemill.models.multimodal.decoder_part import WithDecoder, decoder_part
from pagemill.models.vision.idefics_vision import Idefics2VisionTower
from pagemill.models.vision.learned_queries import LearnedQueries
from pagemill.models.vision.margin import MarginColumns, attend_beside_margin
from pagemill.models.vision.slices import divided
from pagemill.ops.trace import Tensor

_AROUND = "<fake_token_around_image>"
# The smallest images of published processors have 27 x 27 patches, enough for 64 queries.
_APART = 12
# Those of the configuration's class: published checkpoints leave them out.
_PERCEIVER_DEFAULTS = {
    "hidden_size": 4096,
    "resampler_n_latents": 64,
    "resampler_depth": 3,
    "resampler_n_heads": 16,
    "resampler_head_dim": 96,
    "num_key_value_heads": 4,
}


class Idefics2Model(WithDecoder):
    """One Idefics2 model: a `TiledModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        self._text = decoder_part(config, ("mistral",))
        self.ignored = self._text.ignored
        self._tower = Idefics2VisionTower(inner_config(config, "vision_config"))
        text = inner_config(config, "text_config")
        self._projected = positive_int(text, "intermediate_size", 14336)
        self._activation = activation(text, "hidden_act", "silu")
        self._resampler = _Resampler(
            Defaults(inner_config(config, "perceiver_config"), _PERCEIVER_DEFAULTS),
            text,
            self._text.traits.hidden_size,
        )
        self._placeholder = token_id(config, "image_token_id", self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        queries, width = self._resampler.queries, self._text.traits.hidden_size
        media = replace(
            self._tower.media_traits(width=width, placeholders={"image": self._placeholder}),
            rows=queries.group,
            channels=self._tower.channels + queries.channels,
            placed=True,
            shares_ends=True,
            most_tokens=queries.groups(self._tower.side**2, queries.count),
        )
        return replace(self._text.traits, media=media)

    def layout(self, image: PreparedMedia) -> Sequence[MediaPart]:
        if image.values.ndim == 2:
            return _AROUND, image, _AROUND
        rows, whole = divided(image)
        parts: list[MediaPart] = [_AROUND]
        for each in (*(quarter for row in rows for quarter in row), whole):
            parts += each, _AROUND
        return parts

    def features(self, image: PreparedMedia) -> MediaFeatures:
        found, most = self._tower.features(image), self._tower.side**2
        if len(found.rows) > most:
            raise ValueError(f"an image has {len(found.rows)} patches; at most {most} are taken")
        return self._resampler.queries.features(found.rows, self._resampler.queries.count)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        tower, queries = self._tower, self._resampler.queries
        rows, own = ops.split(inputs.media.rows, tower.channels)
        patches, places = ops.split(rows, tower.channels - tower.place_channels)
        beside_patches, beside_all = queries.margins(own)
        named = weights.within("model.vision_model.")
        x = tower.placed(named, patches, places)
        x = tower.encoder.hidden(named, x, (tower.layers,), margin=beside_patches)
        x = tower.post_norm(named, x)
        connector = weights.within("model.connector.")
        width = self._text.traits.hidden_size
        name = "modality_projection"
        gate, up = (
            linear(connector, f"{name}.{part}_proj", x, (self._projected,))
            for part in ("gate", "up")
        )
        x = ops.gated_activation(gate, up, self._activation)
        x = linear(connector, f"{name}.down_proj", x, (width,))
        resampler = connector.within("perceiver_resampler.")
        return self._resampler(resampler, x, own, inputs.media.tokens, beside_all)

    def named(self, weights: Weights) -> Weights:
        return weights.within("text_model.", behind="model.")


class _Resampler:
    """The layers in which queries attend to patches of `width` elements, and to each other."""

    def __init__(self, config: Config, text: Config, width: int) -> None:
        # Its class has the sizes of the text if it has others.
        own = config if config["hidden_size"] == width else text
        self._eps = epsilon(own, "rms_norm_eps", 1e-6)
        self._width = width
        self._depth = layer_count(config, "resampler_depth")
        self._activation = activation(config, "hidden_act", "silu")
        heads, kv_heads, dim = (
            positive_int(config, key)
            for key in ("resampler_n_heads", "num_key_value_heads", "resampler_head_dim")
        )
        if heads % kv_heads:
            raise ModelConfigError(f"{heads} heads of queries cannot share {kv_heads} of keys")
        self._shape = AttentionShape(heads, kv_heads, dim, scale=dim**-0.5)
        self.queries = LearnedQueries(positive_int(config, "resampler_n_latents"), _APART)

    def __call__(
        self, weights: Weights, patches: Tensor, own: Tensor, tokens: Tensor, columns: MarginColumns
    ) -> Tensor:
        """`patches` [T, width], and the columns of queries (learned_queries.py) -> [media_rows,
        width]."""
        x = self.queries.embed(weights, "latents", own, tokens, self._width)
        for layer in range(self._depth):
            prefix = f"layers.{layer}"
            y = norm.rms_norm(weights, f"{prefix}.input_latents_norm", x, self._eps)
            seen = norm.rms_norm(weights, f"{prefix}.input_context_norm", patches, self._eps)
            seen = ops.scatter_rows(seen, y, tokens)
            x = ops.add(x, self._attend(weights, f"{prefix}.self_attn", seen, tokens, columns))
            y = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, self._eps)
            x = ops.add(x, mlp(weights, f"{prefix}.mlp", y, 4 * self._width, self._activation))
        return norm.rms_norm(weights, "norm", x, self._eps)

    def _attend(
        self, weights: Weights, name: str, seen: Tensor, tokens: Tensor, columns: MarginColumns
    ) -> Tensor:
        """`seen` [T, width] -> what `tokens` of it have attended to, [media_rows, width]."""
        shape = self._shape
        q, k, v = (
            linear(weights, f"{name}.{part}_proj", seen, (heads * shape.head_dim,))
            for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads))
        )
        y = ops.select_rows(attend_beside_margin(q, k, v, shape, None, columns), tokens)
        return linear(weights, f"{name}.o_proj", y, (self._width,))
