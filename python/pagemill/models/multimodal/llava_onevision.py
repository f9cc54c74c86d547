"""LLaVA-OneVision: LLaVA-Next with SigLIP's tower and Qwen2, whose large images have fewer tokens
than patches.

Weights as LLaVA-Next's.

Tokens of an image in many tiles are interpolated between the embeddings of its patches. An image
may also be one tile, as each of several images of a prompt was in training.

A frame of a video is a tile, and an item of its own: its tokens are interpolated, half as many in a
row and in a column as patches. The end of a row is behind the last frame.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import ROW_END, MediaFeatures
from pagemill.models.base import Config, MediaPart, ModelConfigError, ModelTraits
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import head_is_tied
from pagemill.models.multimodal.llava_next import LlavaNextModel
from pagemill.models.vision.video_frames import frames_of
from pagemill.weights.json_file import shown

_SIDES = range(384, 2305, 384)
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "vision_feature_select_strategy": "full",
    "image_grid_pinpoints": [[height, width] for height in _SIDES for width in _SIDES],
}
_ASPECT = re.compile(r"anyres_max_([1-9][0-9]?)")
_LEAST_RATIO = 1.1  # of sides; images that are larger by no more are not interpolated


class LlavaOnevisionModel(LlavaNextModel):
    """One LLaVA-OneVision model."""

    texts = ("qwen2",)
    default_layers = (-1,)

    def __init__(self, config: Config) -> None:
        tied = head_is_tied(config, inner_config(config, "text_config"), default=False)
        super().__init__(Defaults({**config, "tie_word_embeddings": tied}, _DEFAULTS))
        aspect: object = config.get("vision_aspect_ratio", "anyres_max_9")
        match = _ASPECT.fullmatch(aspect) if isinstance(aspect, str) else None
        if match is None:
            raise ModelConfigError(
                f"vision_aspect_ratio is {shown(aspect)}; it must be anyres_max_ and a number of"
                " tiles, 1 to 99"
            )
        self._most_patches = int(match[1]) * self._tower.grid.rows
        self._video_placeholder: int | None = None
        key = "video_token_index" if "video_token_index" in config else "video_token_id"
        if config.get(key) is not None:
            self._video_placeholder = token_id(config, key, self._text.traits.vocab_size)

    @property
    def traits(self) -> ModelTraits:
        traits = super().traits
        if traits.media is None or self._video_placeholder is None:
            return traits
        placeholders = {**traits.media.placeholders, "video": self._video_placeholder}
        return replace(traits, media=replace(traits.media, placeholders=placeholders))

    def layout(self, media: PreparedMedia) -> Sequence[MediaPart]:
        if media.kind != "video":
            return [media]
        *frames, last = frames_of(media, self._tower.grid.image_shape)
        return [*map(self._frame, frames), self._frame(last, ends=True)]

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Of tiles with a size, or of an image of one tile without."""
        if image.grid is not None:
            return super().features(image)
        rows = self._tower.grid.patches(image.values)
        placement = np.append(np.arange(len(rows), dtype=np.int32), np.int32(ROW_END))
        return MediaFeatures(rows, len(placement), placement=placement)

    def _placed(self, rows: np.ndarray, picture: np.ndarray) -> MediaFeatures:
        height, width = picture.shape
        ratio = math.sqrt(height * width / self._most_patches)
        if ratio <= _LEAST_RATIO:
            return super()._placed(rows, picture)
        rows_left, columns_left = (max(1, int(side // ratio)) for side in picture.shape)
        cells, shares = _with_row_ends(*_interpolated(picture, rows_left, columns_left))
        whole = np.arange(self._tower.grid.rows, dtype=np.int32)
        placement = np.concatenate([whole[:, None] * (1, 0, 0, 0), cells.reshape(-1, 4)])
        first = np.eye(1, 4, dtype=np.float32).repeat(len(whole), axis=0)
        return MediaFeatures(
            rows,
            len(placement),
            placement=np.ascontiguousarray(placement, np.int32),
            shares=np.concatenate([first, shares.reshape(-1, 4)]),
        )

    def _frame(self, pixels: np.ndarray, *, ends: bool = False) -> MediaFeatures:
        """A frame [3, height, width], with the end of a row behind it if the video `ends`."""
        grid = self._tower.grid
        picture = np.arange(grid.rows, dtype=np.int32).reshape(grid.side, grid.side)
        half = -(-grid.side // 2)
        cells, shares = (part.reshape(1, -1, 4) for part in _interpolated(picture, half, half))
        if ends:
            cells, shares = _with_row_ends(cells, shares)
        placement = np.ascontiguousarray(cells[0], np.int32)
        return MediaFeatures(
            grid.patches(pixels), len(placement), placement=placement, shares=shares[0]
        )


def _interpolated(picture: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The cells of `picture` of which each of `rows` x `columns` tokens is made, and the share of
    each, bilinear. Both are [rows, columns, 4]."""
    row_cells, row_shares = _neighbors(picture.shape[0], rows)
    column_cells, column_shares = _neighbors(picture.shape[1], columns)
    cells = picture[row_cells[:, None, :, None], column_cells[None, :, None, :]]
    shares = row_shares[:, None, :, None] * column_shares[None, :, None, :]
    return cells.reshape(rows, columns, 4), shares.reshape(rows, columns, 4)


def _with_row_ends(cells: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`cells` and `shares`, both [rows, columns, 4], with an end of each row: [rows, columns + 1,
    4]."""
    ends = ((0, 0), (0, 1), (0, 0))
    cells = np.pad(cells, ends, constant_values=ROW_END)
    shares = np.pad(shares, ends)
    shares[:, -1, 0] = 1
    return cells, shares


def _neighbors(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Of `count` points at equal distances in a line of `size` cells: the cells around each, and
    their shares, which are larger for the nearer one. Both are [count, 2]."""
    scale = np.float32(size) / np.float32(count)
    at = scale * (np.arange(count, dtype=np.float32) + np.float32(0.5)) - np.float32(0.5)
    at = np.maximum(at, np.float32(0))
    before = np.minimum(at.astype(np.int32), size - 1)
    behind = np.minimum(before + 1, size - 1)
    share = np.minimum(at - before.astype(np.float32), np.float32(1))
    return np.stack([before, behind], 1), np.stack([1 - share, share], 1)
