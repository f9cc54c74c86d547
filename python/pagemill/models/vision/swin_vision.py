"""Swin, as Donut and Nougat have it (arXiv 2103.14030, 2111.15664): patches of an image to vectors,
one for each square of patches, by stages whose layers attend in windows. Behind each stage but the
last, 2 x 2 vectors become one. In every second layer of a stage windows are shifted.

Weights: `embeddings.{patch_embeddings.projection, norm}`, `encoder.layers.<stage>.blocks.<i>.
{layernorm_before, attention.self.{query,key,value,relative_position_bias_table},
attention.output.dense, layernorm_after, intermediate.dense, output.dense}` and
`encoder.layers.<stage>.downsample.{norm, reduction}`.

A token of the encoder's step is one of the last vectors and has as many rows as a stage has vectors
for it, those of an image row by row (docs/decisions/0137). Keys have a bias by how many rows and
columns they are away from a query, which is no sum of a row's and a column's. So rows of a window
get twice its columns, less one, in which each pair of distances is a distance of its own; what
fills them up is masked, as is what a shifted window has outside of the image
(docs/decisions/0157).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.computed import small_columns
from pagemill.layers.linear import linear_of_rows
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import (
    activation,
    as_list,
    epsilon,
    flag,
    number,
    positive_int,
    refuse,
    square_side,
)
from pagemill.models.vision.sam_vision import rows_of_tokens
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_EPS = 1e-5  # of norms that the configuration does not know
_MASKED = -(2.0**14)
"""Added to scores of keys that are not seen; exact in bf16 and f16."""
_MOST_STAGES, _MOST_LAYERS = 8, 512
_MOST_PATCHES = 2**19  # of an image
_MOST_WINDOW = 32


class _Windows(NamedTuple):
    """The vectors that go `into` windows, i32 [tokens, rows, 1], where each comes `back` from, and
    what is added to scores of keys, `masked` f32 [T, rows, heads, 1]."""

    into: Tensor
    back: Tensor
    masked: Tensor


class SwinVisionTower:
    """One tower, for images of one size."""

    unread = (r"pooler\.dense", "the vectors of all places are used")

    def __init__(self, config: Config) -> None:
        self._depths = _numbers(config, "depths", [2, 2, 6, 2])
        self._heads = _numbers(config, "num_heads", [3, 6, 12, 24])
        stages = len(self._depths)
        if sum(self._depths) > _MOST_LAYERS:
            raise ModelConfigError(f"depths has {sum(self._depths)} layers; at most {_MOST_LAYERS}")
        if stages != len(self._heads):
            raise ModelConfigError("depths and num_heads must have a number for each stage")
        self._width = positive_int(config, "embed_dim", 96)
        for stage, heads in enumerate(self._heads):
            if (self._width << stage) % heads:
                raise ModelConfigError(
                    f"{heads} heads of stage {stage} cannot share {self._width << stage} features"
                )
        self.hidden_size = self._width << (stages - 1)
        refuse(config, "use_absolute_embeddings")
        self._mlp_ratio = number(config, "mlp_ratio", 4.0, least=1.0, most=64.0)
        self._activation = activation(config, "hidden_act", "gelu")
        self._eps = epsilon(config, "layer_norm_eps", 1e-5)
        self._qkv_bias = flag(config, "qkv_bias", True)
        self._window = positive_int(config, "window_size", 7)
        self._colors = positive_int(config, "num_channels", 3)
        self._patch = square_side({"patch_size": 4, **config}, "patch_size")
        self._size = _sides(config)
        height, width = (side // self._patch for side in self._size)
        unit = 1 << (stages - 1)
        if not height * width or any(side % (self._patch * unit) for side in self._size):
            raise ModelConfigError(
                f"image_size {list(self._size)} must be multiples of {self._patch * unit}, which is"
                f" patch_size {self._patch} times {unit} for {stages} stages"
            )
        if height * width > _MOST_PATCHES:
            raise ModelConfigError(
                f"image_size has {height} x {width} patches; at most {_MOST_PATCHES} are supported"
            )
        smallest = min(height, width) // unit
        if not 1 < self._window <= min(smallest, _MOST_WINDOW):
            raise ModelConfigError(
                f"window_size is {self._window}; the last stage has {smallest} rows or columns, and"
                f" windows of 2 to {_MOST_WINDOW} are supported"
            )
        self._grids = [(height >> stage, width >> stage) for stage in range(stages)]
        last = self._grids[-1]
        self.tokens = last[0] * last[1]
        """Of an image."""

    @property
    def channels(self) -> int:
        """Elements of a row of `features`: the patches of a token."""
        return self._rows(0) * self._colors * self._patch**2

    @property
    def step_rows(self) -> int:
        """See `MediaTraits`: windows of the first stage are many times the size of an image."""
        return self.tokens

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """Pixels [colors, height, width] -> the patches of each token side by side.

        Raises:
            ValueError: the image has a grid, or another shape than the tower's.
        """
        expected = (self._colors, *self._size)
        pixels, patch = image.values, self._patch
        if image.grid is not None or pixels.shape != expected:
            raise ValueError(f"an image must be {list(expected)}, got {list(pixels.shape)}")
        rows, columns = self._grids[0]
        cut = pixels.reshape(self._colors, rows, patch, columns, patch).transpose(1, 3, 0, 2, 4)
        values = np.ascontiguousarray(cut, np.float32).reshape(self.tokens, -1)
        return MediaFeatures(values, self.tokens)

    def hidden(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """`features` [T, channels] -> [T, hidden]."""
        x = self._embed(weights, inputs.media.rows)
        for stage, depth in enumerate(self._depths):
            shifts = (0, self._window // 2)
            if min(self._grids[stage]) == self._window:
                shifts = (0, 0)
            windows = {
                shift: self._windows(weights, inputs.positions, stage, shift)
                for shift in shifts[: min(depth, 2)]
            }
            for block in range(depth):
                x = self._layer(weights, stage, block, x, windows[shifts[block % 2]])
            if stage + 1 < len(self._depths):
                x = self._merged(weights, f"encoder.layers.{stage}.downsample", stage, x)
        return x

    def _rows(self, stage: int) -> int:
        """Of a token."""
        return 4 ** (len(self._depths) - 1 - stage)

    def _embed(self, weights: Weights, features: Tensor) -> Tensor:
        colors = self._colors * self._patch**2
        each = np.arange(self._rows(0), dtype=np.int32).reshape(1, -1, 1)
        patches = ops.unfold_listed(features, weights.index("patches", each), colors)
        name = "embeddings.patch_embeddings.projection"
        kernel = weights.patches(name, (self._width, self._colors, self._patch, self._patch))
        x = ops.linear(patches, kernel, weights.vector(f"{name}.bias", self._width))
        return norm.layer_norm(weights, "embeddings.norm", x, _EPS)

    def _windows(self, weights: Weights, positions: Tensor, stage: int, shift: int) -> _Windows:
        """Those of a stage that begin `shift` rows and columns inside of the image."""
        heads = self._heads[stage]
        places, masked = window_rows(self._grids[stage], self._window, shift)
        key = f"windows_{stage}_{shift}"
        index = rows_of_tokens(places, self.tokens)
        back = rows_of_tokens(places_of_rows(places, self._grids[stage]), self.tokens)
        # A number for each row of a token, which all heads have.
        rows = int(index.shape[1])
        table = np.zeros((self.tokens, rows), np.float32)
        table.reshape(-1)[: len(masked)] = masked * np.float32(_MASKED)
        read = ops.embedding(positions, weights.constant(f"masked_{key}", table.tolist()))
        each = weights.index(f"each_of_{rows}", np.arange(rows, dtype=np.int32).reshape(1, -1, 1))
        ones = weights.constant(f"ones{heads}", [[1.0]] * heads)
        of_heads = ops.linear(
            ops.unfold_listed(read, each, 1), ones, row_shape=(rows, heads, 1), dtype="f32"
        )
        return _Windows(weights.index(key, index), weights.index(f"out_of_{key}", back), of_heads)

    def _layer(
        self, weights: Weights, stage: int, block: int, x: Tensor, windows: _Windows
    ) -> Tensor:
        """x [T, rows, features] -> the same elements."""
        prefix = f"encoder.layers.{stage}.blocks.{block}"
        width, rows = self._width << stage, self._rows(stage)
        inner = int(self._mlp_ratio * width)
        y = norm.layer_norm(weights, f"{prefix}.layernorm_before", x, self._eps)
        y = ops.unfold_listed(y, windows.into, width)
        y = self._attend(weights, f"{prefix}.attention.self", stage, y, windows.masked)
        y = ops.unfold_listed(y, windows.back, width)
        name = f"{prefix}.attention.output.dense"
        x = ops.add(x, linear_of_rows(weights, name, y, width, (rows, width)))
        y = norm.layer_norm(weights, f"{prefix}.layernorm_after", x, self._eps)
        y = linear_of_rows(weights, f"{prefix}.intermediate.dense", y, width, (rows, inner))
        y = ops.activation(y, self._activation)
        result = (rows, width) if rows > 1 else (width,)
        y = linear_of_rows(weights, f"{prefix}.output.dense", y, inner, result)
        return ops.add(y, x)

    def _attend(
        self, weights: Weights, prefix: str, stage: int, x: Tensor, masked: Tensor
    ) -> Tensor:
        """x [T, rows of windows, features] -> [T, rows of windows, heads, head_dim]."""
        width, heads, window = self._width << stage, self._heads[stage], self._window
        row_shape = (int(x.shape[1]), heads, width // heads)
        q, k, v = (
            linear_of_rows(weights, f"{prefix}.{part}", x, width, row_shape, bias=self._qkv_bias)
            for part in ("query", "key", "value")
        )
        # Tables begin with a key as far behind the query as a window has rows and columns.
        entries = (2 * window - 1) ** 2
        biases = small_columns(
            weights,
            f"{prefix}.relative_position_bias_table",
            (entries, heads),
            columns=Part(0, heads, heads),
            rows=range(entries - 1, -1, -1),
        )
        return ops.attention(
            q,
            k,
            v,
            scale=(width // heads) ** -0.5,
            causal=False,
            window=window_length(window),
            chunked=True,
            biases=biases,
            key_biases=masked,
        )

    def _merged(self, weights: Weights, prefix: str, stage: int, x: Tensor) -> Tensor:
        """x [T, rows, features], each 2 x 2 of them as one with twice the features: [T, rows / 4,
        2 * features]."""
        width, rows = self._width << stage, self._rows(stage + 1)
        height, columns = self._grids[stage]
        numbers = np.arange(height * columns, dtype=np.int32)
        squares = numbers.reshape(height // 2, 2, columns // 2, 2).transpose(0, 2, 3, 1)
        index = squares.reshape(self.tokens, 4 * rows, 1)
        halves = [
            ops.unfold_listed(x, weights.index(f"half_{half}_of_{stage}", part), width)
            for half, part in enumerate(np.split(index, 2, axis=1))
        ]
        x = ops.concat(*halves, row_shape=(rows, 4 * width))
        x = norm.layer_norm(weights, f"{prefix}.norm", x, _EPS)
        name, out = f"{prefix}.reduction", (rows, 2 * width)
        return linear_of_rows(weights, name, x, 4 * width, out, bias=False)


def window_length(window: int) -> int:
    """Rows of a window of `window` x `window` cells, whose rows have 2 * window - 1 places each,
    but the last has none behind its cells."""
    return (window - 1) * (2 * window - 1) + window


def window_rows(
    grid: tuple[int, int], window: int, shift: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """The places, row by row, of all windows of a `grid` of rows and columns: the number of a cell
    in the grid, or -1; and whether a place is not seen. Zeros that fill up windows at the lower and
    right edge are seen, as if the grid had them. With a `shift`, windows begin so many rows and
    columns behind those without, and others are in front of the first."""
    starts: list[np.ndarray] = []
    filled: list[int] = []
    for side in grid:
        whole = -(-side // window) * window
        starts.append(np.arange(shift - window if shift else 0, whole, window))
        filled.append(whole)
    inside = np.arange(window)
    columns = np.arange(2 * window - 1)
    rows = starts[0][:, None, None, None] + inside[:, None]
    across = starts[1][:, None, None] + columns
    is_cell = (columns < window) & (rows >= 0) & (rows < filled[0])
    is_cell = is_cell & (across >= 0) & (across < filled[1])
    exists = is_cell & (rows < grid[0]) & (across < grid[1])
    places = np.where(exists, rows * grid[1] + across, -1)
    length = window_length(window)
    flat = (-1, window * (2 * window - 1))
    return (
        places.reshape(flat)[:, :length].reshape(-1).astype(np.int32),
        ~is_cell.reshape(flat)[:, :length].reshape(-1),
    )


def places_of_rows(places: npt.NDArray[np.int32], grid: tuple[int, int]) -> npt.NDArray[np.int32]:
    """Where each cell of the grid, row by row, is among `places` of `window_rows`."""
    back = np.empty(grid[0] * grid[1], np.int32)
    found = np.flatnonzero(places >= 0)
    back[places[found]] = found
    return back


def _numbers(config: Config, key: str, default: list[int]) -> list[int]:
    """A number for each stage."""
    value = config.get(key)
    listed = default if value is None else as_list(value)
    if listed is None or not 1 <= len(listed) <= _MOST_STAGES:
        raise ModelConfigError(f"{key} must list 1 to {_MOST_STAGES} numbers, it is {shown(value)}")
    return [positive_int({key: each}, key) for each in listed]


def _sides(config: Config) -> tuple[int, int]:
    """Height and width of an image, in pixels."""
    value: object = config.get("image_size")
    listed = as_list(value) or [224 if value is None else value] * 2
    if len(listed) != 2:
        raise ModelConfigError(f"image_size is {shown(value)}; it must be a height and a width")
    height, width = (positive_int({"image_size": each}, "image_size") for each in listed)
    return height, width
