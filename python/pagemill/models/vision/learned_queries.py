"""Queries that a resampler learns, among the patches of an image of any size: their number does not
follow the image's size.

    queries = LearnedQueries(count=64, apart=12)
    item = queries.features(patches, 64)          # rows [rows, channels + queries.channels]
    patches, own = ops.split(inputs.media.rows, channels)
    q = queries.embed(weights, "latents", own, tokens, hidden)        # [media_rows, hidden]
    patch_columns, columns = queries.margins(own)

Each query is a row of an item in front of some patches: an embedding is made of a query and of what
follows it, so that values of queries have the dimension of embeddings, and their attention is that
among the rows of the item. A large image has more such rows than queries, and a small one more
rows than patches; the others are margin (margin.py), and a placement lists the queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagemill import ops
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.models.base import ModelConfigError
from pagemill.models.vision.margin import MARGIN_COLUMNS, MarginColumns, margin_columns
from pagemill.models.vision.place_embeddings import share_products
from pagemill.ops.trace import Tensor

_DIGIT = 16
_MAX_QUERIES = 4096


@dataclass(frozen=True, slots=True)
class LearnedQueries:
    """At most `count` queries, each in front of `apart` patches."""

    count: int
    apart: int

    def __post_init__(self) -> None:
        """Raises ModelConfigError if there are too many queries."""
        if self.count > _MAX_QUERIES:
            raise ModelConfigError(
                f"an image has {self.count} learned queries; at most {_MAX_QUERIES} are supported"
            )

    @property
    def group(self) -> int:
        """Rows of a query and the patches behind it."""
        return 1 + self.apart

    @property
    def channels(self) -> int:
        """Columns behind those of a patch: two digits of a query's number, each a 1 among zeros,
        and two margins."""
        return self._digits + _DIGIT + 2 * MARGIN_COLUMNS

    @property
    def _digits(self) -> int:
        return -(-self.count // _DIGIT)

    def groups(self, patches: int, count: int) -> int:
        """Those of an item with so many patches and queries."""
        return max(count, -(-patches // self.apart))

    def features(self, patches: np.ndarray, count: int) -> MediaFeatures:
        """An item of `patches` [patches, channels] and the first `count` queries, a token each."""
        groups, (number, channels) = self.groups(len(patches), count), patches.shape
        behind = groups * self.apart
        rows = np.zeros((groups, self.group, channels + self.channels), np.float32)
        padded = np.pad(patches, ((0, behind - number), (0, 0)))
        rows[:, 1:, :channels] = padded.reshape(groups, self.apart, channels)
        query = np.arange(count)
        rows[query, 0, channels + query // _DIGIT] = 1
        rows[query, 0, channels + self._digits + query % _DIGIT] = 1
        ones, no_patch, more_ones, neither = np.moveaxis(rows[:, :, -2 * MARGIN_COLUMNS :], 2, 0)
        ones[:] = more_ones[:] = no_patch[:, 0] = neither[count:, 0] = 1
        no_patch[:, 1:] = neither[:, 1:] = (np.arange(behind) >= number).reshape(groups, -1)
        return MediaFeatures(
            rows.reshape(groups * self.group, -1), count, placement=query.astype(np.int32)
        )

    def margins(self, own: Tensor) -> tuple[MarginColumns, MarginColumns]:
        """The columns `own` [T, channels] -> those that leave out all rows but patches, and all but
        patches and queries."""
        _, both = ops.split(own, self.channels - 2 * MARGIN_COLUMNS)
        patches, all_rows = ops.split(both, MARGIN_COLUMNS)
        return margin_columns(patches), margin_columns(all_rows)

    def embed(self, weights: Weights, name: str, own: Tensor, tokens: Tensor, width: int) -> Tensor:
        """The columns `own` [T, channels] -> the queries, rows of the parameter `name` [count,
        width], and zeros for other `tokens`: [media_rows, width]."""
        digits, _ = ops.split(ops.select_rows(own, tokens), self._digits + _DIGIT)
        shares = share_products(weights, digits, self._digits)
        if shares.width > self.count:
            shares, _ = ops.split(shares, self.count)
        return ops.linear(shares, weights.turned_matrix(name, (width, self.count)))
