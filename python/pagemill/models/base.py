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
    place of those of placeholder tokens for a model with media."""

    token_ids: Tensor
    positions: Tensor
    media: MediaInputs | None = None


@dataclass(frozen=True, slots=True)
class MediaTraits:
    """The media items of a model, which are all alike: features [rows, channels], to which its
    encoder adds `class_tokens` tokens in front, become embeddings [tokens, width] in place of as
    many tokens. In a prompt one token `placeholder` stands for an item."""

    rows: int
    channels: int
    class_tokens: int
    tokens: int
    width: int
    placeholder: int


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

    1. `features` makes what the encoder reads of one image, f32 [rows, channels], of its pixels
       [3, height, width], normalized as the model wants them. A ValueError says what it takes.
    2. `embeddings` traces the encoder from features [media_rows, channels] to a row for each token
       that an item stands for; `positions`, i32 [T], are those of the encoder's tokens.
    3. `hidden` puts `inputs.media` in place of the embeddings of tokens.
    """

    def features(self, pixels: np.ndarray) -> np.ndarray: ...

    def embeddings(self, weights: Weights, media: MediaInputs, positions: Tensor) -> Tensor: ...
