"""Phi-4 multimodal: SigLIP's vision tower on tiles of an image, a conformer for audio, and Phi-3.

Weights: those of phi3.py; behind `model.embed_tokens_extend.audio_embed.` those of
phi4_audio_encoder.py; and behind `model.embed_tokens_extend.image_embed.`: `img_processor.`
(phi4_vision.py), `img_projection_up`, `img_projection_down`, `sub_img_feature_extensor`, an
embedding of the ends of rows, and `global_img_feature_extensor`, one between both parts of an
image. The projector of audio beside images is not read.

An image is divided into tiles, with the whole image, resized to one tile, in front of them. It is
three items: all tiles, whose rows go across them, without the margin; one token between; and the
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import ROW_END, MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.phi4_audio_encoder import Phi4AudioEncoder
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelEncoder,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, inner_config, square_side, token_id
from pagemill.models.multimodal.decoder_part import WithDecoder
from pagemill.models.multimodal.two_encoders import TwoEncoders
from pagemill.models.phi3 import Phi3Model
from pagemill.models.vision.patch_grid import averaged_patches
from pagemill.models.vision.phi4_vision import Phi4VisionTower
from pagemill.models.vision.vision_layers import feature_depths
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_IMAGES = "model.embed_tokens_extend.image_embed."
_MERGE = 2
_MAX_TILES = 36
_KINDS = 2  # columns of features: 1 for patches, and 1 for those of the token between


class Phi4ImageModel(WithDecoder):
    """One Phi-4 multimodal model without audio: a `TiledModel` and a `RowEndModel` (base.py)."""

    ignored = {
        **Phi3Model.ignored,
        r"model\.embed_tokens_extend\.audio_embed\..*_for_vision_speech\..*": (
            "audio is read without images"
        ),
        r"model\.embed_tokens_extend\.image_embed\.img_processor\.(post_layernorm|head)\..*": (
            "the vectors of all patches are used, not normalized"
        ),
    }

    def __init__(self, config: Config) -> None:
        self._text = Phi3Model(config)
        vision = inner_config(config, "vision_config")
        self._tower = Phi4VisionTower(vision, merge=_MERGE)
        _, side, _ = self._tower.grid.image_shape
        crop = square_side(Defaults(vision, {"crop_size": side}), "crop_size")
        if crop != side:
            raise ModelConfigError(f"crop_size is {crop}, but a tile has image_size {side}")
        layer = {"vision_feature_layer": vision.get("feature_layer", -2)}
        depths = feature_depths(layer, (), self._tower.layers)
        if len(depths) != 1:
            raise ModelConfigError("feature_layer must be one layer")
        self._depth = depths[0]
        stated = {"image_token_id": 200010, **vision}
        self._placeholder = token_id(stated, "image_token_id", self._text.traits.vocab_size)

    @property
    def traits(self) -> ModelTraits:
        grid = self._tower.grid
        media = MediaTraits(
            rows=grid.rows,
            channels=self._tower.channels + _KINDS,
            tokens=grid.tokens,
            width=self._text.traits.hidden_size,
            placeholders={"image": self._placeholder},
            any_size=True,
            tiles=True,
            # Of tiles one above the other.
            most_tokens=_MAX_TILES * (grid.tokens + self._side),
            adapter="vision-lora",
        )
        return replace(self._text.traits, media=media)

    @property
    def _side(self) -> int:
        """Tokens in a row of a tile."""
        return self._tower.grid.side // _MERGE

    def layout(self, image: PreparedMedia) -> Sequence[MediaFeatures]:
        whole, tiles, (rows, columns) = self._divided(image)
        side = self._tower.grid.side
        down, across = len(tiles), len(tiles[0])
        patches = np.concatenate(
            [
                self._patches(tile, rows - row * side, columns - column * side)
                for row, line in enumerate(tiles)
                for column, tile in enumerate(line)
            ]
        )
        numbers = np.arange(down * across * self._side**2, dtype=np.int32)
        picture = numbers.reshape(down, across, self._side, self._side).transpose(0, 2, 1, 3)
        picture = picture.reshape(down * self._side, across * self._side)
        picture = picture[: -(-rows // _MERGE), : -(-columns // _MERGE)]
        return self._placed(patches, picture), self._between(), self.features(whole)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Of one tile without a margin."""
        side = self._tower.grid.side
        numbers = np.arange(self._side**2, dtype=np.int32).reshape(self._side, self._side)
        return self._placed(self._patches(image.values, side, side), numbers)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        images = weights.within(_IMAGES)
        features, kinds = ops.split(inputs.media.rows, self._tower.channels)
        tower = images.within("img_processor.")
        x = self._tower.hidden(tower, features, self._depth)
        x = averaged_patches(ops.select_rows(x, inputs.media.tokens, count=_MERGE**2), _MERGE**2)
        between = self._special(images, "global_img_feature_extensor", inputs)
        both = ops.concat(x, ops.select_rows(between, inputs.media.tokens))
        # In f32, as `mix_streams` reads weights.
        identity = weights.constant("kinds", np.eye(_KINDS).tolist())
        kinds = ops.linear(ops.select_rows(kinds, inputs.media.tokens), identity, dtype="f32")
        return self._projected(images, ops.mix_streams(both, kinds))

    def row_end(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        images = weights.within(_IMAGES)
        return self._projected(images, self._special(images, "sub_img_feature_extensor", inputs))

    def named(self, weights: Weights) -> Weights:
        return weights

    def _special(self, weights: Weights, name: str, inputs: EncoderInputs) -> Tensor:
        """Equal rows [T, hidden]."""
        table = weights.vectors((name,), self._tower.hidden_size, table=True)
        return ops.embedding(inputs.positions, table, outside=0)

    def _projected(self, weights: Weights, x: Tensor) -> Tensor:
        width = self._text.traits.hidden_size
        x = linear(weights, "img_projection_up", x, (width,), bias=True)
        x = ops.activation(x, ActivationKind.GELU)
        return linear(weights, "img_projection_down", x, (width,), bias=True)

    def _patches(self, tile: np.ndarray, rows: int, columns: int) -> np.ndarray:
        """Those of a tile, from which on the picture has so many rows and columns of patches."""
        side = self._tower.grid.side
        patches = self._tower.features(tile, min(rows, side), min(columns, side))
        kinds = np.eye(1, _KINDS, dtype=np.float32).repeat(len(patches), axis=0)
        return np.concatenate([patches, kinds], 1)

    def _placed(self, rows: np.ndarray, picture: np.ndarray) -> MediaFeatures:
        """Tokens of the numbers of embeddings in `picture`, with the ends of its rows."""
        lines = np.pad(picture, ((0, 0), (0, 1)), constant_values=ROW_END).reshape(-1)
        return MediaFeatures(rows, len(lines), placement=np.ascontiguousarray(lines))

    def _between(self) -> MediaFeatures:
        """A tile whose first token is the one between both parts of any image."""
        rows = np.zeros((self._tower.grid.rows, self._tower.channels + _KINDS), np.float32)
        rows[:, -1] = 1
        return MediaFeatures(rows, 1, placement=np.zeros(1, np.int32))

    def _divided(
        self, image: PreparedMedia
    ) -> tuple[PreparedMedia, list[list[np.ndarray]], tuple[int, int]]:
        """The whole image, rows of tiles, and how many patches high and wide the picture is.

        Raises:
            ValueError: it does not have the tiles of its grid.
        """
        if image.grid is None:
            raise ValueError(
                "an image of this model has a grid: give (tiles, (1, height, width)), in patches"
                " of all tiles without the margin"
            )
        time, rows, columns = image.grid
        side = self._tower.grid.side
        down, across = -(-rows // side), -(-columns // side)
        expected = (1 + down * across, *self._tower.grid.image_shape)
        if time != 1 or min(rows, columns) < 1 or image.values.shape != expected:
            raise ValueError(
                f"an image of {rows} x {columns} patches must be {list(expected)}, the whole and"
                f" its tiles, got a grid of {list(image.grid)} and {list(image.values.shape)}"
            )
        if down * across > _MAX_TILES:
            raise ValueError(f"an image has {down * across} tiles; at most {_MAX_TILES} are taken")
        whole, *tiles = image.values
        lines = [tiles[row * across :][:across] for row in range(down)]
        return PreparedMedia("image", whole), lines, (rows, columns)


class Phi4MultimodalModel(TwoEncoders):
    """One Phi-4 multimodal model: an `EncodersModel` (base.py)."""

    ignored = Phi4ImageModel.ignored

    def __init__(self, config: Config) -> None:
        images = Phi4ImageModel(config)
        traits = images.traits
        audio = Phi4AudioEncoder(
            inner_config(config, "audio_config"), traits.hidden_size, traits.vocab_size
        )
        super().__init__(images, ModelEncoder(audio.traits, audio))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)
