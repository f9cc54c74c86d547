"""Square images, or tiles of larger ones, of the one size that a vision tower takes."""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.models.base import Config, MediaTraits, ModelConfigError
from pagemill.models.config_keys import number
from pagemill.ops.trace import Tensor

_MAX_MERGE = 8
_MAX_SIDE = 1024  # patches in a row


class PatchGrid:
    """The patches of such an image, row by row. With `merge` above 1 they are in the order in which
    a model merges them: those of each square of `merge` x `merge` one after the other, squares row
    by row; or with a `window`, those of each window of `window` x `window` squares one after the
    other. Pixels behind the last whole patch are not read."""

    def __init__(
        self, *, colors: int, size: int, patch: int, merge: int = 1, window: int = 0
    ) -> None:
        """`size` and `patch` are sides in pixels.

        Raises:
            ModelConfigError: an image has no patch or too many, or they cannot be merged.
        """
        self._colors, self._size, self._patch, self._merge = colors, size, patch, merge
        self.side = size // patch
        """Patches in a row."""
        if self.side > _MAX_SIDE:
            raise ModelConfigError(
                f"image_size {size} has {self.side} patches of patch_size {patch} in a row; at most"
                f" {_MAX_SIDE} are supported"
            )
        if not self.side or self.side % merge:
            raise ModelConfigError(
                f"image_size {size} has {self.side} patches of {patch} in a row, which cannot be"
                f" merged {merge} by {merge}"
            )
        self._window = window or self.side // merge
        if self.side // merge % self._window:
            raise ModelConfigError(
                f"image_size {size} has {self.side} patches of {patch} in a row, which are no whole"
                f" windows of {window * merge}"
            )

    @property
    def rows(self) -> int:
        """Patches of an image."""
        return self.side**2

    @property
    def tokens(self) -> int:
        """Of an image: merged patches."""
        return self.rows // self._merge**2

    @property
    def channels(self) -> int:
        """Elements of a patch."""
        return self._colors * self._patch**2

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Colors, height and width."""
        return self._colors, self._size, self._size

    def kernel(self, hidden: int) -> tuple[int, int, int, int]:
        """The shape of the convolution that makes `hidden` features of each patch."""
        return hidden, self._colors, self._patch, self._patch

    def order(self) -> np.ndarray:
        """For each patch in this order its number row by row, [rows]."""
        merge, window = self._merge, self._window
        windows = self.side // merge // window
        numbers = np.arange(self.rows).reshape(windows, window, merge, windows, window, merge)
        return numbers.transpose(0, 3, 1, 4, 2, 5).reshape(-1)

    def places(self) -> np.ndarray:
        """The number of each merged patch in this order, by its row and column."""
        side = self.side // self._merge
        row, column = np.divmod(self.order()[:: self._merge**2], self.side)
        numbers = np.empty((side, side), np.int32)
        numbers[row // self._merge, column // self._merge] = np.arange(self.tokens)
        return numbers

    def patches(self, pixels: np.ndarray) -> np.ndarray:
        """An image of `image_shape` as its patches [rows, channels].

        Raises:
            ValueError: it has another shape.
        """
        if pixels.shape != self.image_shape:
            expected = list(self.image_shape)
            raise ValueError(f"an image must be {expected}, got {list(pixels.shape)}")
        side, patch = self.side, self._patch
        whole = pixels[:, : side * patch, : side * patch]
        cut = whole.reshape(self._colors, side, patch, side, patch).transpose(1, 3, 0, 2, 4)
        patches = cut.reshape(self.rows, self.channels)[self.order()]
        return np.ascontiguousarray(patches, np.float32)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        """The features of an item with merged patches.

        Raises:
            ValueError: it has a grid, or another shape than `image_shape`.
        """
        if image.grid is not None:
            raise ValueError("an image of this model is an array of pixels, without a grid")
        return MediaFeatures(self.patches(image.values), self.tokens)

    def tiles(self, image: PreparedMedia) -> list[PreparedMedia]:
        """The tiles of an image that is one of them or an array of several.

        Raises:
            ValueError: it is another array, or has a grid.
        """
        pixels, shape = image.values, self.image_shape
        if image.grid is not None:
            raise ValueError("an image of this model is an array of tiles, without a grid")
        tiles = pixels if pixels.ndim == len(shape) + 1 else pixels[None]
        if not len(tiles) or tiles.shape[1:] != shape:
            raise ValueError(
                f"an image must be {list(shape)}, or tiles [tiles, {', '.join(map(str, shape))}],"
                f" got {list(pixels.shape)}"
            )
        return [PreparedMedia("image", tile) for tile in tiles]

    def tile_rows(self, image: PreparedMedia) -> tuple[list[list[PreparedMedia]], PreparedMedia]:
        """Rows of tiles of an image with a grid, and the whole image as its last tile; one without
        a grid is the whole alone.

        Raises:
            ValueError: it does not have the tiles of its grid.
        """
        if image.grid is None:
            return [], image
        time, rows, columns = image.grid
        expected = (rows * columns + 1, *self.image_shape)
        if time != 1 or rows < 1 or columns < 1 or image.values.shape != expected:
            raise ValueError(
                f"an image of 1 x {rows} x {columns} tiles must be {list(expected)}, got a grid of"
                f" {[time, rows, columns]} and {list(image.values.shape)}"
            )
        *tiles, whole = (PreparedMedia("image", each) for each in image.values)
        return [tiles[row * columns :][:columns] for row in range(rows)], whole

    def media_traits(
        self,
        *,
        width: int,
        placeholder: int,
        class_tokens: int = 0,
        grid: bool = False,
        kind: MediaKind = "image",
    ) -> MediaTraits:
        """Those of items with merged patches, whose embeddings have `width` elements; with a `grid`
        patches have positions."""
        return MediaTraits(
            rows=self.rows,
            channels=self.channels,
            class_tokens=class_tokens,
            tokens=self.tokens,
            width=width,
            placeholders={kind: placeholder},
            grid=grid,
        )


def averaged_patches(x: Tensor, count: int) -> Tensor:
    """x [N, count * width], patches one after the other -> their average, [N, width]."""
    width, total = x.width // count, None
    for index in range(count):
        patch = x
        if index < count - 1:
            patch, x = ops.split(x, width)
        total = patch if total is None else ops.add(total, patch)
    assert total is not None
    return ops.scale(total, 1 / count)


def merged_side(config: Config, key: str) -> int:
    """The side of squares of patches that are merged: the ratio at `key`, by default 0.5, is 1 over
    it.

    Raises:
        ModelConfigError: it is no such ratio.
    """
    ratio = number(config, key, 0.5, least=1 / _MAX_MERGE, most=1.0)
    merge = round(1 / ratio)
    if merge * ratio != 1:
        raise ModelConfigError(f"{key} is {ratio:g}; it must be 1 over a whole number")
    return merge
