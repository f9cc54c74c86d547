"""What a model family is to the program builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor

Config = Mapping[str, Any]


class ModelConfigError(ValueError):
    """A configuration lacks a key, or asks for something that the family does not support."""


@dataclass(frozen=True, slots=True)
class MediaInputs:
    """`rows` [media_rows, ...] that media give, features to an encoder and embeddings to the model,
    and `tokens`, i32 [media_rows], which of the step's tokens each of them is."""

    rows: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The step's arrays that every model reads: token_ids and positions, i32 [T]; embeddings in
    place of those of placeholder tokens for a model with media; grid_positions, i32 [T, 3], in
    time, row and column, if its items have a grid."""

    token_ids: Tensor
    positions: Tensor
    media: MediaInputs | None = None
    grid_positions: Tensor | None = None


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """What an encoder reads: features and the tokens that `media` names (MediaTraits.any_size);
    positions, i32 [T], count up in each item; grid_positions, i32 [T, 3], if items have a grid."""

    media: MediaInputs
    positions: Tensor
    grid_positions: Tensor | None = None


@dataclass(frozen=True, slots=True)
class MediaTraits:
    """The media items of a model: features [rows, channels], to which its encoder adds
    `class_tokens` tokens in front, become embeddings [tokens, width] in place of as many tokens. In
    a prompt one token `placeholder` stands for an item.

    All items are alike, and `MediaInputs` of the encoder has the features as [media_rows,
    channels]; or they have `any_size`, a multiple of `rows` and as many times `tokens`. Features
    are then [tokens, channels], and `MediaInputs.tokens` the first row of each embedding. With a
    `grid`, tokens have positions in time, row and column."""

    rows: int
    channels: int
    class_tokens: int
    tokens: int
    width: int
    placeholder: int
    any_size: bool = False
    grid: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """Pixels of an image, normalized as its model wants them: [3, height, width], or with a `grid`
    patches [patches, channels] of so many in time, height and width."""

    pixels: np.ndarray
    grid: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class GridPositions:
    """In time, row and column, i32 [n, 3]: of an item's `rows` in the encoder, and of its `tokens`
    from its start on; the token behind it is at `next`."""

    rows: np.ndarray
    tokens: np.ndarray
    next: int


@dataclass(frozen=True, slots=True)
class MediaFeatures:
    """What an encoder reads of an item, f32 [rows, channels], how many `tokens` it stands for, and
    where they are if it has a grid."""

    rows: np.ndarray
    tokens: int
    positions: GridPositions | None = None


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What the engine has to know of a model. `causal`: a token never sees a later one;
    `generates`: it has logits; `media`: it is a MediaModel."""

    vocab_size: int
    hidden_size: int
    max_model_len: int
    causal: bool
    generates: bool
    media: MediaTraits | None = None


# Of decoders with rotary positions.
IGNORED_IN_DECODERS: Mapping[str, str] = {
    r".*\.rotary_emb\.inv_freq": "frequencies are computed from the configuration",
    r"lm_head\.weight": "the embedding is used if they are tied, no head if vectors are pooled",
}


class Model(Protocol):
    """One model of a family.

    1. `from_config` reads a config.json (or its equivalent of a GGUF file) and refuses what the
       family cannot do with a ModelConfigError.
    2. `hidden` traces the model from token ids to final, normalized vectors [T, H].
    3. `logits` traces the head on some of their rows [L, H] -> [L, vocab]; only where it generates.
    4. `ignored` says which tensors of a checkpoint may stay unread, and why: a regular expression
       of whole names each. All others are asked for, or the model is refused.
    """

    ignored: ClassVar[Mapping[str, str]]

    @classmethod
    def from_config(cls, config: Config) -> Self: ...

    @property
    def traits(self) -> ModelTraits: ...

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor: ...

    def logits(self, weights: Weights, rows: Tensor) -> Tensor: ...


@runtime_checkable
class MediaModel(Model, Protocol):
    """A model that takes images; its traits have `media`.

    1. `features` makes what the encoder reads of one image. A ValueError says what it takes.
    2. `embeddings` traces the encoder from features to a row for each token that an item stands
       for.
    3. `hidden` puts `inputs.media` in place of the embeddings of tokens.
    """

    def features(self, image: Image) -> MediaFeatures: ...

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor: ...
