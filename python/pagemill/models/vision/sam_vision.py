"""SAM's vision transformer and its neck: patches of a square image to vectors, and what reads
these: convolutions, and interpolation.

Weights: `patch_embed.projection`, `pos_embed`, `layers.<i>.{layer_norm1, attn.{qkv, proj,
rel_pos_h, rel_pos_w}, layer_norm2, mlp.{lin1, lin2}}` and `neck.{conv1, layer_norm1, conv2,
layer_norm2}`; or by SAM's own names `patch_embed.proj`, `blocks.<i>.{norm1, norm2}` and
`neck.{0, 1, 2, 3}` in place of these.

A token of the encoder's step is one of the vectors that models leave of an image, by default one
of 4 x 4 patches. It has several rows, so that the rows of a request are the patches of its image
row by row, its windows with the zeros at their edges, or what a convolution leaves, and what is
behind them fills up the last tokens (docs/decisions/0137).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.computed import resampled
from pagemill.layers.linear import linear_of_rows
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelConfigError
from pagemill.models.config_keys import (
    Defaults,
    activation,
    epsilon,
    flag,
    layer_count,
    layer_numbers,
    number,
    positive_int,
    square_side,
)
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.models.vision.place_embeddings import bilinear_shares, smoothed_cubic_shares
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

UNIT = 4
"""The side, in patches, of what convolutions leave one vector of."""
_NECK_EPS = 1e-6
_TAPS = 3  # of convolutions, in rows and in columns
# Those of the configuration's class: published checkpoints leave them out.
_DEFAULTS = {
    "hidden_size": 768,
    "output_channels": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 1024,
    "patch_size": 16,
    "window_size": 14,
    "global_attn_indexes": [2, 5, 8, 11],
}


@dataclass(frozen=True, slots=True)
class SamNames:
    """Those of tensors, by default in the layout of `transformers`."""

    patches: str = "patch_embed.projection"
    layers: str = "layers"
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2")
    neck: tuple[str, str, str, str] = ("conv1", "layer_norm1", "conv2", "layer_norm2")


SAM_NAMES = SamNames("patch_embed.proj", "blocks", ("norm1", "norm2"), ("0", "1", "2", "3"))
"""SAM's own."""


class SamVisionTower:
    """One tower, for images of one size: that of the configuration, or squares of `side` patches,
    for which its tables of places and distances are resampled. An image has as many `tokens`, by
    default one for UNIT x UNIT patches."""

    def __init__(
        self,
        config: Config,
        *,
        side: int | None = None,
        tokens: int | None = None,
        names: SamNames = SamNames(),
    ) -> None:
        config = Defaults(config, _DEFAULTS)
        self._names = names
        self._hidden = positive_int(config, "hidden_size")
        ratio = number(config, "mlp_ratio", 4.0, least=1.0, most=64.0)
        config = Defaults(config, {"mlp_dim": int(self._hidden * ratio)})
        self.layers = layer_count(config)
        self._mlp = positive_int(config, "mlp_dim")
        self._activation = activation(config, "hidden_act", "gelu")
        self._eps = epsilon(config, "layer_norm_eps", 1e-6)
        self._qkv_bias = flag(config, "qkv_bias", True)
        self._has_positions = flag(config, "use_abs_pos", True)
        self._has_biases = flag(config, "use_rel_pos", True)
        self.global_layers = layer_numbers(config, "global_attn_indexes")
        """Those that attend to the whole image."""
        self._window = positive_int(config, "window_size")
        self._heads = positive_int(config, "num_attention_heads")
        self._head_dim, rest = divmod(self._hidden, self._heads)
        if rest:
            raise ModelConfigError(f"{self._heads} heads cannot share {self._hidden} features")
        self.channels = positive_int(config, "output_channels")
        """Elements of the vectors behind the neck."""
        size, patch = square_side(config, "image_size"), square_side(config, "patch_size")
        colors = positive_int(config, "num_channels", 3)
        self._stored_side = size // patch  # of the tables
        size = size if side is None else side * patch
        self._grid = PatchGrid(colors=colors, size=size, patch=patch)
        self.side = self._grid.side
        """Patches in a row of an image."""
        if self.side % UNIT or self._window > self.side:
            raise ModelConfigError(
                f"image_size has {self.side} patches in a row, which must be a multiple of {UNIT}"
                f" and at least window_size, {self._window}"
            )
        patches = self.side**2
        self.tokens = patches // UNIT**2 if tokens is None else tokens
        """Of an image."""
        # Patches of a token: a number of which all patches are a multiple, so that the table of
        # their places has whole rows.
        self._rows = -(-patches // self.tokens)
        while patches % self._rows:
            self._rows += 1

    def media_traits(self, *, width: int, placeholder: int) -> MediaTraits:
        """Those of items that become an embedding of `width` for each token. One image is encoded
        at a time: its windows are many times the size of its patches."""
        return MediaTraits(
            rows=self.tokens,
            channels=self.channels_of_token,
            tokens=self.tokens,
            width=width,
            placeholders={"image": placeholder},
            step_rows=self.tokens,
        )

    @property
    def channels_of_token(self) -> int:
        """Elements of a row of `features`."""
        return self._rows * self._grid.channels

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Colors, height and width."""
        return self._grid.image_shape

    def tiles(self, image: PreparedMedia) -> list[PreparedMedia]:
        """See `PatchGrid.tiles`."""
        return self._grid.tiles(image)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """The patches of each token side by side; zeros fill up the last ones.

        Raises:
            ValueError: the image has a grid, or another shape than the tower's.
        """
        if image.grid is not None:
            raise ValueError("an image of this model is an array of pixels, without a grid")
        patches = self._grid.patches(image.values)
        filled = np.pad(patches, ((0, self._rows * self.tokens - len(patches)), (0, 0)))
        return MediaFeatures(filled.reshape(self.tokens, -1), self.tokens)

    def output(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        """`features` -> what is behind the neck, [T, rows, channels]."""
        (x,) = self.states(weights, inputs, (self.layers,))
        return self.neck(weights.within("neck."), x)

    def states(
        self, weights: Weights, inputs: EncoderInputs, depths: Sequence[int]
    ) -> list[Tensor]:
        """`features` [T, channels_of_token] -> what is behind so many layers, ascending: [T, rows,
        hidden] each."""
        x = self._embed(weights, inputs)
        states: list[Tensor] = []
        for layer in range(depths[-1]):
            side = self.side if layer in self.global_layers else self._window
            x = self._layer(weights, f"{self._names.layers}.{layer}", x, side)
            if layer + 1 in depths:
                states.append(x)
        return states

    def neck(self, weights: Weights, x: Tensor) -> Tensor:
        """x [T, rows, hidden] -> [T, rows, channels]; `weights` are those of a neck."""
        conv1, norm1, conv2, norm2 = self._names.neck
        kernel = weights.patches(conv1, (self.channels, self._hidden, 1, 1))
        x = norm.layer_norm(weights, norm1, ops.linear(x, kernel), _NECK_EPS)
        x = convolution(weights, conv2, x, self.channels, self.side, self.tokens)
        return norm.layer_norm(weights, norm2, x, _NECK_EPS)

    def _embed(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        name, colors = self._names.patches, self._grid.channels
        # The patches of a token, as rows.
        each = weights.index("patches", np.arange(self._rows, dtype=np.int32).reshape(1, -1, 1))
        patches = ops.unfold_listed(inputs.media.rows, each, colors)
        kernel = weights.patches(name, self._grid.kernel(self._hidden))
        x = ops.linear(patches, kernel, weights.vector(f"{name}.bias", self._hidden))
        if not self._has_positions:
            return x
        # Tokens behind the last patch read any.
        return ops.add(x, ops.embedding(inputs.positions, self._positions(weights), outside=0))

    def _positions(self, weights: Weights) -> Tensor:
        """The embeddings of the places of each token's patches, [tokens, rows * hidden]."""
        side = self._stored_side
        stored = (1, side, side, self._hidden)
        shape = (self.side**2 // self._rows, self._rows * self._hidden)
        if side == self.side:
            return weights.reshaped("pos_embed", stored, shape)
        shares = smoothed_cubic_shares(np.arange(self.side), self.side, side)
        return resampled(weights, "pos_embed", stored, _of_both(shares), shape)

    def _layer(self, weights: Weights, prefix: str, x: Tensor, side: int) -> Tensor:
        """One layer, which attends in windows of `side` x `side` patches."""
        hidden = self._hidden
        norm1, norm2 = (f"{prefix}.{name}" for name in self._names.norms)
        y = norm.layer_norm(weights, norm1, x, self._eps)
        if side < self.side:
            places = window_places(self.side, side, self.tokens)
            y = ops.unfold_listed(y, weights.index(f"windows_of_{side}", places), hidden)
        y = self._attend(weights, f"{prefix}.attn", y, side)
        if side < self.side:
            back = places_in_windows(self.side, side, self.tokens, self._rows)
            index = weights.index(f"patches_in_windows_of_{side}", back)
            y = ops.unfold_listed(y, index, hidden)
        rows = self._rows
        y = linear_of_rows(weights, f"{prefix}.attn.proj", y, hidden, (rows, hidden))
        x = ops.add(x, y)
        y = norm.layer_norm(weights, norm2, x, self._eps)
        y = linear_of_rows(weights, f"{prefix}.mlp.lin1", y, hidden, (rows, self._mlp))
        y = ops.activation(y, self._activation)
        y = linear_of_rows(weights, f"{prefix}.mlp.lin2", y, self._mlp, (rows, hidden))
        return ops.add(x, y)

    def _attend(self, weights: Weights, prefix: str, x: Tensor, side: int) -> Tensor:
        """x [T, rows, hidden], squares of `side` x `side` one after the other -> [T, rows, heads,
        head_dim]."""
        hidden, dim = self._hidden, self._head_dim
        row_shape = (int(x.shape[1]), self._heads, dim)

        def project(index: int) -> Tensor:
            rows = Part(index * hidden, (index + 1) * hidden, 3 * hidden)
            name, bias = f"{prefix}.qkv", self._qkv_bias
            return linear_of_rows(weights, name, x, hidden, row_shape, bias=bias, rows=rows)

        def biases(name: str, q: Tensor) -> Tensor:
            # Tables begin with a key as far in front of the query as there are rows or columns.
            count = 2 * side - 1
            stored = count if side < self.side else 2 * self._stored_side - 1
            shares = bilinear_shares(np.arange(count - 1, -1, -1), count, stored)
            table = resampled(weights, f"{prefix}.{name}", (stored, dim), shares, (count, dim))
            return ops.linear(q, table, dtype="f32")

        q, k, v = (project(index) for index in range(3))
        by_distance = ("rel_pos_h", "rel_pos_w") if self._has_biases else ()
        tables = [biases(name, q) for name in by_distance]
        return ops.attention(
            q,
            k,
            v,
            scale=dim**-0.5,
            causal=False,
            window=side**2,
            chunked=True,
            biases=tables[0] if tables else None,
            column_biases=tables[1] if tables else None,
            grid_columns=side if tables else 0,
        )


def _of_both(shares: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`shares` [cells, places] of rows, which are those of columns, too -> [cells^2, places^2]."""
    cells, places = shares.shape
    products = shares[:, None, :, None] * shares[None, :, None, :]
    return products.reshape(cells**2, places**2)


def convolution(
    weights: Weights,
    name: str,
    x: Tensor,
    channels: int,
    side: int,
    tokens: int,
    *,
    stride: int = 1,
) -> Tensor:
    """A convolution of 3 x 3 without biases, and with zeros around the image, of images of `side`
    x `side` rows and so many `tokens`: x [T, J, in] -> [T, J / stride^2, channels]."""
    places = convolution_places(side, stride, tokens)
    index = weights.index(f"convolution_of_{side}_by_{stride}", places)
    features = int(x.shape[2])
    windows = ops.unfold_listed(x, index, features)
    kernel = weights.patches(name, (channels, features, _TAPS, _TAPS))
    return ops.linear(windows, kernel)


def interpolated(
    weights: Weights, x: Tensor, positions: Tensor, sides: tuple[int, int], tokens: int
) -> Tensor:
    """Images of a square of rows, x [T, J, features], resampled to another one, between four rows
    each: the number of rows of a token follows from the `sides` of both, a multiple of `tokens`."""
    side, to = sides
    at = (np.arange(to, dtype=np.float32) + np.float32(0.5)) * np.float32(side) / np.float32(to)
    at = np.clip(at - np.float32(0.5), 0, side - 1)
    first = np.floor(at).astype(np.int32)
    behind = at - first
    rows = to**2 // tokens
    total: Tensor | None = None
    for row, column in itertools.product(range(2), repeat=2):
        ends = [np.minimum(first + end, side - 1) for end in (row, column)]
        shares = [behind if end else 1 - behind for end in (row, column)]
        places = ends[0][:, None] * side + ends[1]
        index = weights.index(f"interpolated_{row}_{column}", rows_of_tokens(places, tokens))
        table = np.outer(*shares).reshape(tokens, rows)
        y = ops.unfold_listed(x, index, int(x.shape[2]))
        y = ops.scale_groups(y, _factors(weights, f"shares_{row}_{column}", table, positions))
        total = y if total is None else ops.add(total, y)
    assert total is not None
    return total


def _factors(
    weights: Weights, name: str, table: npt.NDArray[np.float32], positions: Tensor
) -> Tensor:
    """The row of `table` for each token, f32 [T, columns]."""
    columns = table.shape[1]
    read = ops.embedding(positions, weights.constant(name, table.tolist()))
    identity = weights.constant("identity", np.eye(columns, dtype=np.float32).tolist())
    return ops.linear(read, identity, dtype="f32")


def convolution_places(side: int, stride: int, tokens: int) -> npt.NDArray[np.int32]:
    """The rows of an image of `side` x `side` that each output of a convolution of 3 x 3 reads, -1
    outside of it: [tokens, outputs of a token, 9]."""
    centers = np.arange(0, side, stride)
    read = centers[:, None] + np.arange(-(_TAPS // 2), _TAPS // 2 + 1)
    rows, columns = read[:, None, :, None], read[None, :, None, :]
    inside = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
    return rows_of_tokens(np.where(inside, rows * side + columns, -1), tokens, _TAPS**2)


def window_places(side: int, window: int, tokens: int) -> npt.NDArray[np.int32]:
    """The patches of an image of `side` x `side` in windows of `window` x `window`, one after the
    other, -1 for what fills up windows at its edges: [tokens, rows of a token, 1]."""
    windows = -(-side // window)
    filled = np.full((windows * window, windows * window), -1, np.int32)
    filled[:side, :side] = np.arange(side**2).reshape(side, side)
    places = filled.reshape(windows, window, windows, window).transpose(0, 2, 1, 3)
    return rows_of_tokens(places, tokens)


def places_in_windows(side: int, window: int, tokens: int, rows: int) -> npt.NDArray[np.int32]:
    """Where each patch, row by row, is among those of `window_places`: [tokens, rows, 1]."""
    places = window_places(side, window, tokens).reshape(-1)
    order = np.full(tokens * rows, -1, np.int32)
    order[places[places >= 0]] = np.flatnonzero(places >= 0)
    return rows_of_tokens(order, tokens)


def rows_of_tokens(places: np.ndarray, tokens: int, size: int = 1) -> npt.NDArray[np.int32]:
    """Windows of `size` places one after the other, divided among tokens; -1 fills up the last:
    [tokens, windows of a token, size]."""
    windows = places.reshape(-1, size)
    filled = np.pad(windows, ((0, -len(windows) % tokens), (0, 0)), constant_values=-1)
    return filled.reshape(tokens, -1, size).astype(np.int32)
