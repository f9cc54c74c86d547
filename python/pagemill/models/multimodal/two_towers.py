"""What CLIP and SigLIP have in common: a tower for images and one for texts, whose vectors are
compared. A prompt is a text, whose last token is embedded, or an image, for which one token stands
that no text has: the one behind the vocabulary.

Weights: `text_model.` and a linear layer behind it; `vision_model.` of a subclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import activation
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.ops.trace import Tensor


class TextTower(Decoder):
    """The tower for texts. Tokens behind the vocabulary, which stand for images, read any row."""

    names = DecoderNames(
        embedding="text_model.embeddings.token_embedding",
        layers="text_model.encoder.layers",
        norm="text_model.final_layer_norm",
        attention_norm="layer_norm1",
        feed_forward_norm="layer_norm2",
        positions="text_model.embeddings.position_embedding",
    )

    def __init__(self, config: Config, *, eps: float, hidden_act: str) -> None:
        """`eps` and `hidden_act` are the defaults of the family."""
        super().__init__(config, eps=("layer_norm_eps", eps))
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", hidden_act)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        words = weights.matrix(f"{self.names.embedding}.weight", table)
        x = ops.embedding(inputs.token_ids, words, outside=0)
        name, count = "text_model.embeddings.position_embedding", self.sizes.max_positions
        return embedding.add_positions(weights, name, x, inputs.positions, count)


class TwoTowers:
    """Texts as vectors of `width` features, by a linear layer behind their tower, `projection`.
    A subclass has a `media`, and `features` and `embeddings` (`MediaEncoder` of base.py)."""

    projection = "text_projection"
    projection_bias = False
    ignored: dict[str, str] = {
        "logit_scale": "vectors are compared by their cosine",
        r".*\.position_ids": "positions count up from 0",
    }

    def __init__(self, text: TextTower, width: int) -> None:
        self._text = text
        self.width = width
        self.placeholders: Mapping[MediaKind, int] = {"image": text.traits.vocab_size}

    @property
    def media(self) -> MediaTraits:
        raise NotImplementedError

    def features(self, image: PreparedMedia) -> MediaFeatures:
        raise NotImplementedError

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        raise NotImplementedError

    @property
    def traits(self) -> ModelTraits:
        text = self._text.traits
        return replace(
            text,
            vocab_size=text.vocab_size + 1,
            hidden_size=self.width,
            generates=False,
            media=self.media,
        )

    def media_of_grid(self, grid: PatchGrid, class_tokens: int = 0) -> MediaTraits:
        """The traits of images of one size, each of which has one embedding."""
        return MediaTraits(
            rows=grid.rows + class_tokens,
            channels=grid.channels,
            tokens=1,
            width=self.width,
            placeholders=self.placeholders,
        )

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = self._text.hidden(weights, replace(inputs, media=None))
        x = linear(weights, self.projection, x, (self.width,), bias=self.projection_bias)
        return inputs.with_media(x)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("a model of two towers has no language model head")
