"""ERNIE 4.5 VL: a vision tower for images and frames of any size, a resampler, and ERNIE 4.5 with
positions of three dimensions and experts for media (ernie4_5_vl_text.py).

Weights: `vision_model.` (ernie4_5_vl_vision.py), which may be behind `model.`;
`model.resampler_model.{spatial_linear, temporal_linear, mlp, after_norm}`, and the language
model's. Images and pairs of frames have an encoder each, of the same weights.

The tokens at both ends of an image or a video are media, too, because the experts for media compute
them: their embeddings, which are those of the language model, come from the encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, MediaPart, ModelConfigError, ModelTraits
from pagemill.models.config_keys import (
    as_list,
    inner_config,
    positive_int,
    refuse,
    rope_parameters,
    token_id,
)
from pagemill.models.multimodal.decoder_part import head_is_tied, parts_weights
from pagemill.models.multimodal.ernie4_5_vl_text import Ernie45VlTextModel
from pagemill.models.multimodal.language_part import LanguagePart
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.multimodal.two_encoders import TwoEncoders, encoder_of
from pagemill.models.vision.ernie4_5_vl_vision import (
    MARKS,
    PAIR,
    Ernie45VlPairTower,
    Ernie45VlVisionTower,
)
from pagemill.models.vision.grid_rotary import COLUMN, ROW
from pagemill.models.vision.grid_vision import EPS
from pagemill.models.vision.video_frames import in_time
from pagemill.ops import ActivationKind
from pagemill.ops.program import GRID_DIMS
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_TIME = 0  # the dimension of grid positions
_SECTIONS = [22, 22, 20]  # pairs of a head that rotate by row, column and time
# Those of the configuration's class: published checkpoints may leave them out.
_TOKENS = {
    "image_start_token_id": 101304,
    "image_end_token_id": 101305,
    "image_token_id": 100295,
    "video_start_token_id": 101306,
    "video_end_token_id": 101307,
    "video_token_id": 103367,
}
_TEXT: Mapping[str, Any] = {"rope_theta": 500_000.0, "vocab_size": 103424}


class Ernie45VlLanguagePart(LanguagePart):
    """The text of ERNIE 4.5 VL."""

    families = {"ernie4_5_vl_moe_text": Ernie45VlTextModel}
    defaults = _TEXT

    def __init__(self, config: Config) -> None:
        refuse(inner_config(config, "text_config"), "use_bias")
        super().__init__(config)


class Ernie45VlModel(TwoEncoders):
    """One ERNIE 4.5 VL model: an `EncodersModel` (base.py)."""

    def __init__(self, config: Config) -> None:
        images, pairs = Ernie45VlImages(config), Ernie45VlPairs(config)
        both = [token for each in (images, pairs) for token in each.tokens]
        if len({*both}) != len(both):
            raise ModelConfigError(
                "image_token_id, image_start_token_id, image_end_token_id and the same of videos"
                f" must be six tokens, they are {', '.join(map(str, both))}"
            )
        super().__init__(images, encoder_of(pairs))
        self.ignored = images.ignored

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        if config.get("vision_config") is None:
            return Ernie45VlLanguagePart(config)
        return cls(config)


class Ernie45VlImages(Qwen2VlModel):
    """The model with its encoder of images. A subclass reads another `kind`."""

    tower = Ernie45VlVisionTower
    part = Ernie45VlLanguagePart
    kind: ClassVar[MediaKind] = "image"

    def __init__(self, config: Config) -> None:
        text = inner_config(config, "text_config")
        rope = {"mrope_section": _SECTIONS, **rope_parameters({**_TEXT, **text})}
        tied = head_is_tied(config, text, default=True)
        width = positive_int(text, "hidden_size")
        given = {
            **_TOKENS,
            **config,
            "text_config": {**text, "rope_parameters": rope},
            "vision_config": {**inner_config(config, "vision_config"), "out_hidden_size": width},
            "tie_word_embeddings": tied,
        }
        super().__init__(given)
        self._merged = self._tower.hidden_size * self._tower.merge**2
        vocab = self._text.traits.vocab_size
        names = ("token_id", "start_token_id", "end_token_id")
        self.tokens = [token_id(given, f"{self.kind}_{name}", vocab) for name in names]
        """That of an embedding, and those at both ends."""
        self._placeholders = {self.kind: self.tokens[0]}

    def dims_of_layers(self, text: Config) -> Sequence[Sequence[int]]:
        sections = rope_parameters(text)["mrope_section"]
        return [_dims_of_pairs(sections, len(dims)) for dims in super().dims_of_layers(text)]

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        assert traits.media is not None and isinstance(self._tower, Ernie45VlVisionTower)
        rows = traits.media.rows * self._tower.spans
        ends = tuple(self.tokens[1:])
        media = replace(traits.media, rows=rows, text_rows=True, encoded_tokens=ends)
        return replace(traits, media=media)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        assert isinstance(self._tower, Ernie45VlVisionTower)
        tower = parts_weights(weights, "vision_model.ln.weight")
        x = self._tower.hidden(tower.within("vision_model."), inputs)
        count = self._tower.merge**2 * self._tower.spans
        x = ops.select_rows(x, inputs.media.tokens, count=count)
        resampler = weights.within("model.resampler_model.")
        x = self._mlp(resampler, "temporal_linear", self._of_two_frames(resampler, x))
        width = self._text.traits.hidden_size
        x = linear(resampler, "mlp", x, (width,), bias=True)
        x = norm.rms_norm(resampler, "after_norm", x, self._text.sizes.norm_eps)
        ends = [self._end(weights, token, inputs.media.tokens) for token in self.tokens[1:]]
        same = weights.constant("marks", np.eye(MARKS).tolist())
        shares = ops.linear(self._tower.marks(inputs), same, dtype="f32")
        return ops.moe_combine(ops.concat(x, *ends, row_shape=(MARKS, width)), shares)

    def _of_two_frames(self, weights: Weights, x: Tensor) -> Tensor:
        """Squares [N, merged] -> [N, 2 merged]: both frames that an embedding spans are the same
        image."""
        x = self._mlp(weights, "spatial_linear", x)
        return ops.concat(x, x)

    def _end(self, weights: Weights, token: int, rows: Tensor) -> Tensor:
        """The language model's embedding of a token, as often as there are `rows`, i32 [N]: [N,
        width]."""
        vocab, width = self._text.traits.vocab_size, self._text.traits.hidden_size
        row = Part(token, token + 1, vocab)
        table = self.named(weights).matrix("model.embed_tokens.weight", (vocab, width), rows=row)
        return ops.embedding(rows, table, outside=0)

    def _mlp(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [N, in] -> [N, merged], normalized."""
        x = linear(weights, f"{name}.0", x, (self._merged,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        x = linear(weights, f"{name}.2", x, (self._merged,), bias=True)
        return norm.layer_norm(weights, f"{name}.3", x, EPS)


class Ernie45VlPairs(Ernie45VlImages):
    """Its encoder of pairs of frames: a `TiledModel` (base.py)."""

    tower = Ernie45VlPairTower
    kind = "video"

    def video_layout(self, items: Sequence[PreparedMedia], times: FrameTimes) -> list[MediaPart]:
        """Items of two frames, whose times are in their pixels."""
        del times
        assert isinstance(self._tower, Ernie45VlPairTower)
        if len(items) % PAIR:
            raise ValueError(f"a video of this model has pairs of frames, got {len(items)} frames")
        pairs = zip(items[::PAIR], items[1::PAIR], strict=True)
        features = [self._tower.pair(*pair) for pair in pairs]
        return [*in_time(features, range(len(features)))]

    def features(self, image: PreparedMedia) -> MediaFeatures:
        raise ValueError("a video of this model has pairs of frames")

    def _of_two_frames(self, weights: Weights, x: Tensor) -> Tensor:
        """Squares of both frames side by side, [N, 2 merged] -> [N, 2 merged]."""
        frames = [self._mlp(weights, "spatial_linear", each) for each in ops.split(x, self._merged)]
        return ops.concat(*frames)


def _dims_of_pairs(sections: object, pairs: int) -> list[int]:
    """The position dimension by which each pair rotates: rows and columns take turns, and time is
    behind them.

    Raises:
        ModelConfigError: there are not as many rows as columns.
    """
    counts = as_list(sections) or []
    if len(counts) != GRID_DIMS or counts[0] != counts[1]:
        raise ModelConfigError(
            f"mrope_section must have as many pairs for rows as for columns, it is {shown(counts)}"
        )
    space = [ROW, COLUMN] * counts[0]
    return [*space, *[_TIME] * (pairs - len(space))]
