"""The projectors of Granite 4 Vision: in each window of patches queries, one for each square of
2 x 2 patches, attend to each other and to the patches (a Q-Former of BLIP-2).

Weights: `norm`, `query`, `image_positions`, `qformer.layernorm`, in its layer i
`qformer.encoder.layer.<i>.{attention, crossattention}.{attention.{query, key, value},
output.{dense, LayerNorm}}`, `intermediate_query.dense` and `output_query.{dense, LayerNorm}`; and
`out_linear`.

Patches are in the order of windows and of squares in them (patch_grid.py). The query of a square
stands in the rows of its four patches, which are alike: attention among all rows of a window gives
what it gives among queries, and three of four rows are dropped at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import Config, EncoderInputs, ModelConfigError
from pagemill.models.config_keys import activation, epsilon, layer_count, positive_int, refuse
from pagemill.models.vision.patch_grid import PatchGrid
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

MERGE = 2
_SQUARE = MERGE**2
_EPS = 1e-6
_HEAD_DIM = 64
_MOST_PLACES = 1 << 21  # numbers of the table of places: 8 MiB of the program


def squares_of_window(config: Config, key: str) -> int:
    """Squares in a row of a window: the ratio at `key`, such as "4/8", has them and twice as many
    patches.

    Raises:
        ModelConfigError: it is no such ratio.
    """
    first, _, second = str(config.get(key)).partition("/")
    sides = [int(side) if side.isdecimal() and len(side) < 4 else 0 for side in (first, second)]
    if not sides[0] or sides[1] != MERGE * sides[0]:
        raise ModelConfigError(
            f'{key} is {shown(config.get(key))}; it must be that of squares of 2 x 2, such as "4/8"'
        )
    return sides[0]


@dataclass(frozen=True, slots=True)
class WindowPlaces:
    """Where each patch is in its window, [T, patches of a window], and its square, [T, squares]: a
    1 among zeros."""

    patches: Tensor
    squares: Tensor


class WindowQueries:
    """All projectors of a model, whose tower has vectors of `hidden` elements in the order of
    `grid`, with windows of `side` squares in a row."""

    def __init__(self, config: Config, *, hidden: int, grid: PatchGrid, side: int) -> None:
        """`config` is that of the Q-Former."""
        refuse(config, "use_qformer_text_input")
        self._hidden, self._grid, self._side = hidden, grid, side
        if grid.rows * (self._window + side**2) > _MOST_PLACES:
            raise ModelConfigError(
                f"{grid.rows} patches of an image, in windows of {self._window}, are too many: the"
                f" table of their places may have {_MOST_PLACES} numbers"
            )
        self._layers = layer_count(config, default=1)
        self._intermediate = positive_int(config, "intermediate_size", 3072)
        self._every = positive_int(config, "cross_attention_frequency", 1)
        self._activation = activation(config, "hidden_act", "gelu")
        self._eps = epsilon(config, "layer_norm_eps", 1e-12)
        heads = hidden // _HEAD_DIM
        if not heads or hidden % heads:
            raise ModelConfigError(
                f"{hidden} features of the tower cannot be shared by heads of {_HEAD_DIM}"
            )
        head_dim = hidden // heads
        self._shape = AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    @property
    def _window(self) -> int:
        """Patches of a window."""
        return _SQUARE * self._side**2

    def places(self, weights: Weights, inputs: EncoderInputs) -> WindowPlaces:
        """Those of the patches of an item."""
        patches, squares = self._window, self._side**2
        numbers = self._grid.order()
        row, column = np.divmod(numbers, self._grid.side)
        side = MERGE * self._side
        row, column = row % side, column % side
        table = np.zeros((len(numbers), patches + squares), np.float32)
        each = np.arange(len(numbers))
        table[each, row * side + column] = 1
        table[each, patches + row // MERGE * self._side + column // MERGE] = 1
        read = ops.embedding(inputs.positions, weights.constant("in_window", table.tolist()))
        return WindowPlaces(*ops.split(read, patches))

    def __call__(
        self,
        weights: Weights,
        x: Tensor,
        places: WindowPlaces,
        tokens: Tensor,
        width: int,
        *,
        corner: int | None = None,
    ) -> Tensor:
        """x [T, hidden] -> [media_rows, width], one for each square. A query is added to the mean
        of its square, or to one `corner` of it."""
        x = norm.layer_norm(weights, "norm", x, _EPS)
        corners = range(_SQUARE) if corner is None else (corner,)
        of_square = reduce(ops.add, [_of_corner(weights, x, each) for each in corners])
        query = self._placed(weights, "query", places.squares)
        y = ops.add(query, ops.scale(of_square, 1 / len(corners)))
        seen = ops.add(x, self._placed(weights, "image_positions", places.patches))
        y = norm.layer_norm(weights, "qformer.layernorm", y, self._eps)
        for layer in range(self._layers):
            prefix = f"qformer.encoder.layer.{layer}"
            y = self._attend(weights, f"{prefix}.attention", y, y)
            if layer % self._every == 0:
                y = self._attend(weights, f"{prefix}.crossattention", y, seen)
            z = linear(
                weights, f"{prefix}.intermediate_query.dense", y, (self._intermediate,), bias=True
            )
            z = ops.activation(z, self._activation)
            y = self._added(weights, f"{prefix}.output_query", z, y)
        return linear(weights, "out_linear", ops.select_rows(y, tokens), (width,), bias=True)

    def _placed(self, weights: Weights, name: str, places: Tensor) -> Tensor:
        """The rows of the parameter `name` [1, n, hidden] for `places` [T, n]: [T, hidden]."""
        count = places.width
        shape, stored = (self._hidden, count), (1, count, self._hidden)
        return ops.linear(places, weights.turned_matrix(name, shape, stored=stored))

    def _attend(self, weights: Weights, prefix: str, y: Tensor, seen: Tensor) -> Tensor:
        """The queries y [T, hidden] and what they attend to of `seen` [T, hidden] in their window,
        added and normalized."""
        shape, window = self._shape, self._window
        heads = (shape.heads, shape.head_dim)
        q, k, v = (
            linear(weights, f"{prefix}.attention.{part}", x, heads, bias=True)
            for part, x in (("query", y), ("key", seen), ("value", seen))
        )
        attended = ops.attention(
            q, k, v, scale=shape.scale, causal=False, window=window, chunked=True
        )
        return self._added(weights, f"{prefix}.output", attended, y)

    def _added(self, weights: Weights, prefix: str, x: Tensor, y: Tensor) -> Tensor:
        x = linear(weights, f"{prefix}.dense", x, (self._hidden,), bias=True)
        return norm.layer_norm(weights, f"{prefix}.LayerNorm", ops.add(x, y), self._eps)


def _of_corner(weights: Weights, x: Tensor, corner: int) -> Tensor:
    """x [T, H] -> for each patch one of its square, [T, 1, H]."""
    index: npt.NDArray[np.int32] = np.full((_SQUARE, 1, 1), corner, np.int32)
    return ops.unfold_listed(x, weights.index(f"corner_{corner}", index), x.width)
