"""A model of images with a further encoder, of other kinds of media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pagemill.layers.base import Weights
from pagemill.models.base import MediaEncoder, ModelEncoder, ModelTraits, StepInputs
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class ImageModel(MediaEncoder, Protocol):
    """A model of images, whose decoder is its `text` (decoder_part.py)."""

    @property
    def traits(self) -> ModelTraits: ...

    @property
    def text(self) -> Decoder: ...

    def named(self, weights: Weights) -> Weights: ...

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor: ...

    def logits(self, weights: Weights, rows: Tensor) -> Tensor: ...

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor: ...


class TwoEncoders:
    """An `EncodersModel` (base.py): `images`, whose text it generates, and `further`."""

    ignored: Mapping[str, str] = {}

    def __init__(self, images: ImageModel, further: ModelEncoder) -> None:
        self._images = images
        self._encoders = encoder_of(images), further

    @property
    def traits(self) -> ModelTraits:
        return replace(self._images.traits, media=None)

    @property
    def encoders(self) -> Sequence[ModelEncoder]:
        return self._encoders

    @property
    def text(self) -> Decoder:
        return self._images.text

    def named(self, weights: Weights) -> Weights:
        return self._images.named(weights)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._images.hidden(weights, inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._images.logits(weights, rows)

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        return self._images.token_logits(weights, rows, sums)


def encoder_of(model: ImageModel) -> ModelEncoder:
    """That of a model with one."""
    media = model.traits.media
    assert media is not None
    return ModelEncoder(media, model)
