"""What the vision transformers of Qwen2-VL and later, and of GLM-4.1V, share: patches of images of
any size, turned by row and column, of which each square makes one vector.

Weights: `patch_embed.proj`, and in layer i `blocks.<i>.attn.{qkv, proj}`, or `q`, `k` and `v`.

Each square of patches to be merged, 2 x 2 of them, is consecutive, squares row by row; or window by
window, if the tower has windows, and embeddings then have places (`MediaFeatures.placement`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.layers import attention
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelConfigError
from pagemill.models.config_keys import layer_count, positive_int
from pagemill.models.vision.grid_rotary import COLUMN, ROW, frequencies, grid_heads, grid_rotary
from pagemill.models.vision.place_embeddings import PlaceTable
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

EPS = 1e-6
_MAX_MERGE = 16


class GridPatches:
    """Patches of images of any size, of which each square makes an embedding. A subclass has:

    - `place_table`, if patches read learned embeddings of places; or `place_channels` and `places`,
      if it reads something else about a patch's place than its positions.
    - `turns`: whether heads turn by the positions of patches.
    - `row_by_row`: whether processors have patches in rows, not in the order of squares.
    - `hidden`: patches [T, channels] -> [media_rows, width of results].

    `patch` and `merge` are the sides of a patch in pixels, and of a square in patches; `window` is
    how many squares a window in which layers attend has in a row; 0: there are no windows. A patch
    spans `frames` images; those of an image are all the same one.
    """

    turns: bool = True
    row_by_row: ClassVar[bool] = False

    def __init__(self, *, patch: int, merge: int, colors: int, frames: int) -> None:
        if merge > _MAX_MERGE:
            raise ModelConfigError(
                f"{merge} x {merge} patches are merged; at most {_MAX_MERGE} x {_MAX_MERGE}"
            )
        self.patch, self.merge, self.colors, self.frames = patch, merge, colors, frames
        self.window = 0
        self.place_table: PlaceTable | None = None

    @property
    def place_channels(self) -> int:
        """Elements that a row of features has behind those of its patch."""
        return 0 if self.place_table is None else 2 * self.place_table.side

    @property
    def channels(self) -> int:
        """Elements of a row of features."""
        return self._patch_elements + self.place_channels

    @property
    def _patch_elements(self) -> int:
        return self.colors * self.frames * self.patch**2

    def media_traits(self, *, width: int, placeholders: Mapping[MediaKind, int]) -> MediaTraits:
        """Those of items of which each square makes an embedding of `width` elements."""
        return MediaTraits(
            rows=self.merge**2,
            channels=self.channels,
            tokens=1,
            width=width,
            placeholders=placeholders,
            any_size=True,
            grid=self.turns,
            placed=self.window > 0,
        )

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Patches [patches, elements] with their grid -> rows of features [patches, channels]."""
        if image.grid is None:
            raise ValueError(
                "an image of this model has a grid: give (patches, (time, rows, columns))"
            )
        time, height, width = image.grid
        merge = self.merge
        if time != 1 or height < merge or width < merge or height % merge or width % merge:
            raise ValueError(
                f"the grid of an image must be 1, and two multiples of {merge}, got"
                f" {[time, height, width]}"
            )
        expected = (height * width, self._patch_elements)
        values = image.values
        if self.row_by_row:
            values = values.reshape(len(values), math.prod(values.shape[1:]))
        if values.shape != expected:
            raise ValueError(f"patches must be {list(expected)}, got {list(values.shape)}")
        squares = _grid(height // merge, width // merge)
        first = squares * np.array([1, merge, merge], np.int32)
        patches = (first[:, None] + _grid(merge, merge)).reshape(-1, 3)
        if self.row_by_row:
            row, column = patches[:, ROW], patches[:, COLUMN]
            values = values[row * width + column]
        placement = None
        if self.window:
            order = _window_order(squares, self.window)
            patches, values = (_in_order(each, order) for each in (patches, values))
            placement = np.argsort(order).astype(np.int32)
        positions = None
        if self.turns:
            positions = GridPositions(
                rows=np.ascontiguousarray(patches, np.int32),
                tokens=squares,
                next=max(height, width) // merge,
            )
        rows = np.concatenate(
            [values, self.places(patches[:, ROW:], height, width)], 1, dtype=np.float32
        )
        return MediaFeatures(rows, len(squares), positions, placement=placement)

    def places(self, cells: np.ndarray, height: int, width: int) -> np.ndarray:
        """`cells`, the row and column of each patch in an image of `height` x `width` patches, as
        the tower reads them: f32 [patches, place_channels]."""
        if self.place_table is None:
            return np.empty((len(cells), 0), np.float32)
        return self.place_table.shares(cells, height, width)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        raise NotImplementedError


class GridVisionTower(GridPatches):
    """One tower, whose results have `width` elements. A subclass has what `GridPatches` says, and:

    - `kinds`: the types of its configuration; the first one is the default.
    - `hidden_key` and `width_key` of the configuration: the sizes of its layers and its results.
    - `qkv`: the linear layers of queries, keys and values, or the one of all.
    - `bias` and `output_bias` of its attention's linear layers.
    """

    kinds: ClassVar[tuple[str, ...]]
    hidden_key: ClassVar[str] = "hidden_size"
    width_key: ClassVar[str] = "out_hidden_size"
    qkv: ClassVar[Sequence[str]] = ("qkv",)

    def __init__(self, config: Config) -> None:
        kind = config.get("model_type", self.kinds[0])
        if kind not in self.kinds:
            raise ModelConfigError(
                f"a vision tower of type {shown(kind)} is not supported; known:"
                f" {', '.join(self.kinds)}"
            )
        super().__init__(
            patch=positive_int(config, "patch_size"),
            merge=positive_int(config, "spatial_merge_size", 2),
            colors=positive_int(config, "in_channels", 3),
            frames=positive_int(config, "temporal_patch_size", 2),
        )
        self.hidden_size = positive_int(config, self.hidden_key)
        self.width = positive_int(config, self.width_key)
        self.layers = layer_count(config, "depth")
        self.bias = self.output_bias = True
        self.shape = grid_heads(self.hidden_size, positive_int(config, "num_heads"))
        self._frequencies = frequencies(config, self.shape.head_dim // 2)

    @property
    def result_width(self) -> int:
        """Elements of a row of results."""
        return self.width

    def check_width(self, hidden: int) -> None:
        """Raises ModelConfigError unless results are as wide as a language model's vectors."""
        if self.width != hidden:
            raise ModelConfigError(
                f"vision_config's {self.width_key} is {self.width}, but the language model has"
                f" {hidden}"
            )

    def embed(
        self, weights: Weights, inputs: EncoderInputs, *, bias: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """What the first layer reads, [T, hidden], and the places of patches [T, place_channels] if
        there are any."""
        rows, places = inputs.media.rows, None
        if self.place_channels:
            rows, places = ops.split(rows, self._patch_elements)
        kernel = (self.hidden_size, self.colors, self.frames, self.patch, self.patch)
        matrix = weights.patches("patch_embed.proj", kernel)
        vector = weights.vector("patch_embed.proj.bias", self.hidden_size) if bias else None
        return ops.linear(rows, matrix, vector), places

    def rotary(self, weights: Weights, inputs: EncoderInputs) -> Rotary:
        """Half of the pairs rotate by the row, with the frequencies for that many pairs, half by
        the column."""
        assert inputs.grid_positions is not None
        by = {ROW: self._frequencies, COLUMN: self._frequencies}
        return grid_rotary(weights, inputs.grid_positions, by)

    def project(self, weights: Weights, name: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [T, hidden] -> queries, keys and values of the attention `name`, not rotated."""
        names = [f"{name}.{part}" for part in self.qkv]
        return attention.project_qkv(weights, names, x, self.shape, bias=self.bias)

    def attend(
        self, weights: Weights, layer: int, x: Tensor, rotary: Rotary, *, in_windows: bool = False
    ) -> Tensor:
        """x [T, hidden] -> [T, hidden]: the attention of a layer among the patches of an image, or
        of each window."""
        name, shape = f"blocks.{layer}.attn", self.shape
        q, k, v = self.project(weights, name, x)
        window = self.window * self.merge if in_windows else 0
        y = attention.attend_both_ways(*rotary(q, k), v, shape, grid_window=window)
        return linear(weights, f"{name}.proj", y, (self.hidden_size,), bias=self.output_bias)


def _grid(height: int, width: int) -> np.ndarray:
    """Time, row and column of each cell, row by row, i32 [height * width, 3]."""
    rows, columns = np.divmod(np.arange(height * width, dtype=np.int32), np.int32(width))
    return np.stack([np.zeros_like(rows), rows, columns], axis=1)


def _window_order(squares: np.ndarray, window: int) -> np.ndarray:
    """The numbers of `squares`, [n, 3] in time, row and column, window by window."""
    down, across = squares[:, ROW] // window, squares[:, COLUMN] // window
    return np.lexsort((across, down))  # stable: row by row in each window


def _in_order(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`rows` [n * patches, ...], as many for each square, with the squares in this order."""
    return rows.reshape(len(order), -1, *rows.shape[1:])[order].reshape(rows.shape)
