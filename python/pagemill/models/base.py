"""The interface between model families and the program builder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from pagemill import ops
from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor

Config = Mapping[str, Any]
LIMIT = "max_model_len"
"""The key of the longest context that is served, in a configuration whose model has a longer one.
"""


class ModelConfigError(ValueError):
    """A configuration lacks a key, or requests something that the family does not support."""


@dataclass(frozen=True, slots=True)
class MediaInputs:
    """`rows` of media: features [tokens, channels] for an encoder, or the token ids of texts, i32
    [tokens]; embeddings [media_rows, width] for the model. `tokens`, i32 [media_rows], are those
    that stand for media (`MediaTraits`)."""

    rows: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The step's arrays that every model reads: token_ids and positions, i32 [T]; `media`,
    embeddings in place of those of placeholder tokens, for a model with media or whose prompts may
    be embeddings; grid_positions, i32 [T, 3], in time, row and column, if its items have a grid;
    token_types, i32 [T], 1 for the second text of a pair, if the model has token types; text_rows,
    i32 [text_rows], the tokens that are not media, if the model reads them; decoder_positions, i32
    [T], of an encoder-decoder: positions among the tokens behind those of media."""

    token_ids: Tensor
    positions: Tensor
    media: MediaInputs | None = None
    grid_positions: Tensor | None = None
    token_types: Tensor | None = None
    text_rows: Tensor | None = None
    decoder_positions: Tensor | None = None

    def with_media(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """x [T, H], the embeddings of `token_ids`, with those of `media`, times `scale`, in place
        of placeholders'."""
        if self.media is None:
            return x
        return ops.scatter_rows(x, ops.scale(self.media.rows, scale), self.media.tokens)


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """Inputs of an encoder: features and the tokens that `media` lists (MediaTraits);
    positions, i32 [T], count up in each item; grid_positions, i32 [T, 3], if items have a grid."""

    media: MediaInputs
    positions: Tensor
    grid_positions: Tensor | None = None


@dataclass(frozen=True, slots=True)
class MediaTraits:
    """The media items of an encoder: features [rows, channels], to which it adds `class_tokens`
    tokens in front, become embeddings [tokens, width] in place of as many tokens. `placeholders`
    has the kinds that it takes: of each the token that stands for an item in a prompt.

    All items are alike, or they have `any_size`, a multiple of `rows` and as many times `tokens`;
    fewer rows may be at the end, which are read and make no embedding.
    `MediaInputs` of the encoder has the features as [tokens, channels], zeros for class tokens, and
    `MediaInputs.tokens` is the first of the consecutive rows that each embedding is made of.
    With a `grid`, rows have positions in time, row and column, which the encoder reads, and with a
    `token_grid` so have tokens, and the model reads them; tokens of encoders beside it that have no
    `grid` have those of text. `row_ends` are control tokens that a
    prompt has behind each row of an item's tokens but the last, and behind the last; `video_ends`
    those around the placeholder of a video, which are left out: its items have their own. With
    `encoder_decoder` a prompt begins with its only item, and the model reads the step's arrays
    `encoder_ends` and `decoder_positions`. With `text_rows` it reads the step's array of that name.
    With `text` items are texts, and there are no placeholders of kinds of media. `encoded_tokens`
    are tokens that are items, too, directly in front of a placeholder or behind it: their features
    are zeros, except that the last channels are one for each of these tokens, of which its own is
    1.

    An item of any size has at most `most_tokens` tokens, or if that is 0, as many as a step; a step
    is made large enough for such an item. If `step_rows` is not 0, no more rows are encoded
    together, unless one item has more: the encoder's values for a row are large. If items are
    `placed`, embeddings have places in an item's tokens (`MediaFeatures.placement`), as they have
    with `tiles`: each `rows` rows then attend to themselves alone, behind class tokens of their
    own. With `item_ends` the
    tokens of an item, at most as many as those of a step, see each other in the model's attention,
    which reads the step's array of that name. If it `joins_newlines`, those at the ends of texts
    around an item form tokens with those of the prompt, as in a text. If it has `number_ends`, two
    control tokens, the number of an image, audio or a video in a prompt, from 0 on for each kind,
    is in front of it between them. If it `shares_ends`, the token that ends the texts of one item
    also begins those of the next one, where no token is between them. Media that are `alone` are
    the only kind of a prompt. Videos may have sound if it is a `TiledModel` that has
    `video_sound`. `adapter` is the folder, in that of the checkpoint, of the LoRA adapter with
    which the model was trained to read these media ("." for the checkpoint's own); if several
    kinds of a prompt have one, that of the first encoder is used."""

    rows: int
    channels: int
    tokens: int
    width: int
    placeholders: Mapping[MediaKind, int]
    class_tokens: int = 0
    any_size: bool = False
    grid: bool = False
    token_grid: bool = False
    row_ends: tuple[str, str] | None = None
    video_ends: tuple[str, str] | None = None
    number_ends: tuple[str, str] | None = None
    encoder_decoder: bool = False
    text_rows: bool = False
    text: EncoderText | None = None
    encoded_tokens: tuple[int, ...] = ()
    placed: bool = False
    tiles: bool = False
    item_ends: bool = False
    joins_newlines: bool = False
    shares_ends: bool = False
    most_tokens: int = 0
    step_rows: int = 0
    alone: bool = False
    video_sound: bool = False
    adapter: str | None = None

    def is_refused(self, kinds: Collection[str]) -> bool:
        """Whether it takes media, and no other kinds than these."""
        return bool(self.placeholders) and all(kind in kinds for kind in self.placeholders)


class SoundItem(NamedTuple):
    """An item of the sound of a video, for the encoder of audio."""

    features: MediaFeatures


MediaPart: TypeAlias = PreparedMedia | MediaFeatures | SoundItem | str
"""An item of an image, audio or a video, or a text beside items."""


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """Properties of a model that the engine needs. `causal`: a token never attends to a later one;
    `generates`: it has logits; `media`: it is an EncoderModel, and this is what its encoder takes;
    `token_types`: the second text of a pair has another type than the first; `alignment_heads`: the
    number of heads of cross attention that find in the sound what a token says, of which layers
    name the queries and keys `ALIGNED`, unless the model is divided; `pools_last`: a text is pooled
    by its last token, as those of causal models are.

    A model that generates and is not causal is a prefix language model: the tokens of a prompt,
    media or not, attend to each other, by the step's array `item_ends`, and generated ones to those
    in front of them."""

    vocab_size: int
    hidden_size: int
    max_model_len: int
    causal: bool
    generates: bool
    media: MediaTraits | None = None
    token_types: bool = False
    alignment_heads: int = 0
    pools_last: bool = False


# For decoders with rotary positions.
IGNORED_IN_DECODERS: Mapping[str, str] = {
    r".*\.rotary_emb\.inv_freq": "frequencies are computed from the configuration",
    r"lm_head\.weight": "the embedding is used if they are tied, no head if vectors are pooled",
    r"score\..*": "no classifier if vectors are pooled, or text is generated",
    r"rope_(freqs|factors_long|factors_short)\.weight": "GGUF's factors are configuration",
}


class Model(Protocol):
    """One model of a family.

    1. `from_config` reads a config.json (or the equivalent of a GGUF file) and rejects, with a
       ModelConfigError, what the family does not support.
    2. `hidden` traces the model from token ids to final, normalized vectors [T, H].
    3. `logits` traces the head on some of their rows [L, H] -> [L, vocab]; only if it generates.
    4. `ignored` lists the tensors of a checkpoint that may stay unread, each with the reason: a
       regular expression over whole names. All others must be used, or the model is rejected.
    """

    ignored: Mapping[str, str]

    @classmethod
    def from_config(cls, config: Config) -> Self: ...

    @property
    def traits(self) -> ModelTraits: ...

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor: ...

    def logits(self, weights: Weights, rows: Tensor) -> Tensor: ...


@runtime_checkable
class Classifier(Model, Protocol):
    """A model whose checkpoints may have the head of a classifier.

    1. `classify` traces it on the pooled vectors [R, H] of texts, by `classifier_pooling`, and
       `classify_tokens` on those of all tokens [T, H]: f32, a column for each label. What is pooled
       is `before_pooling` of the vectors of all tokens.
    2. `base_prefix` is in front of the names of all other weights. Checkpoints without a head may
       leave it out.
    """

    classifier_pooling: str

    @property
    def base_prefix(self) -> str: ...

    def before_pooling(self, weights: Weights, hidden: Tensor) -> Tensor: ...

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor: ...

    def classify_tokens(self, weights: Weights, rows: Tensor, labels: int) -> Tensor: ...


@runtime_checkable
class TokenScorer(Model, Protocol):
    """A model that can compute the logits of a few tokens alone: `token_logits` traces sums of
    them, each logit times a factor, on vectors [N, H]: f32 [N, sums]."""

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor: ...


@runtime_checkable
class MaskedModel(Model, Protocol):
    """A model whose checkpoints may have the head of a masked language model: `masked_logits`
    traces it on vectors [N, H], the logits of the vocabulary [N, vocab]."""

    def masked_logits(self, weights: Weights, rows: Tensor) -> Tensor: ...


@runtime_checkable
class ItemEncoder(Protocol):
    """What computes embeddings of images, audio, videos or texts: `embeddings` traces it from
    features, or the ids of a text, to a row for each token that an item stands for. The weights
    are those of the whole checkpoint."""

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor: ...


@runtime_checkable
class MediaEncoder(ItemEncoder, Protocol):
    """What computes embeddings of images, audio or videos: `features` computes its input for one
    item of the kinds that its traits name. A ValueError says what it accepts."""

    def features(self, media: PreparedMedia, /) -> MediaFeatures: ...


@runtime_checkable
class RowEndModel(MediaEncoder, Protocol):
    """An encoder that has an embedding for the ends of rows: `row_end` traces it as equal rows
    [T, width], one for each token of the encoder."""

    def row_end(self, weights: Weights, inputs: EncoderInputs) -> Tensor: ...


@runtime_checkable
class TiledModel(MediaEncoder, Protocol):
    """An encoder that divides an image, audio or a video into several items: `layout` returns them,
    as `features` takes or returns them, with the texts before, between and behind them, which may
    have control tokens. A ValueError says what it accepts. An item that `features` takes has the
    placeholder of its own kind. `MediaFeatures.encoder` of an item that is returned counts the
    model's encoders from this one on."""

    def layout(self, media: PreparedMedia, /) -> Sequence[MediaPart]: ...


@runtime_checkable
class EncoderModel(Model, ItemEncoder, Protocol):
    """A model with one encoder, which its traits have as `media`. `hidden` uses `inputs.media`
    instead of the embeddings of tokens."""


class ModelEncoder(NamedTuple):
    """An encoder of a model, and what it takes."""

    traits: MediaTraits
    encoder: ItemEncoder


@runtime_checkable
class EncodersModel(Model, Protocol):
    """A model with several encoders, each of other kinds of media, whose embeddings are as wide as
    each other. Of those of one kind the first reads media, and the others items of its layout.
    `hidden` uses `inputs.media` as that of an `EncoderModel` does. Operators may leave out
    some of the encoders: the step's arrays are those that the others need."""

    @property
    def encoders(self) -> Sequence[ModelEncoder]: ...


def encoders_of(model: Model) -> Sequence[ModelEncoder]:
    """The encoders of a model; empty if it has none."""
    if isinstance(model, EncodersModel):
        return model.encoders
    media = model.traits.media
    if media is None or not isinstance(model, EncoderModel):
        return ()
    return (ModelEncoder(media, model),)
