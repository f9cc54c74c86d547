"""Weights of a model that is part of another, under the names of the standalone model.

text = PrefixedWeights(weights, "language_model.")
text.vector("model.norm.weight", 64)   # language_model.model.norm.weight
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pagemill.layers.base import Constant, Weights
from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import EVERY_ROW, Part, Stripe
from pagemill.ops.trace import Tensor


class PrefixedWeights:
    """The `Weights` of `whole` whose names begin with `prefix`; or, of names that begin with
    `behind`, those that have `prefix` behind it."""

    def __init__(self, whole: Weights, prefix: str, *, behind: str = "") -> None:
        self.trace, self.shard = whole.trace, whole.shard
        self._whole, self._prefix, self._behind = whole, prefix, behind

    def _named(self, name: str) -> str:
        if not name.startswith(self._behind):
            return name
        return self._behind + self._prefix + name[len(self._behind) :]

    def has(self, name: str) -> bool:
        return self._whole.has(self._named(name))

    def claim(self, name: str) -> None:
        self._whole.claim(self._named(name))

    def linear(
        self,
        module: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
        transposed: bool = False,
    ) -> Tensor:
        name = self._named(module)
        return self._whole.linear(name, shape, rows=rows, columns=columns, transposed=transposed)

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        return self._whole.matrix(self._named(name), shape, rows=rows, columns=columns)

    def turned_matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        columns: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        name = self._named(name)
        return self._whole.turned_matrix(name, shape, columns=columns, stored=stored)

    def stack(
        self,
        experts: str,
        module: str,
        shape: tuple[int, int, int],
        *,
        matrices: Part | None = None,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        return self._whole.stack(
            self._named(experts), module, shape, matrices=matrices, rows=rows, columns=columns
        )

    def turned_stack(
        self,
        name: str,
        shape: tuple[int, int, int],
        *,
        stripe: Stripe = EVERY_ROW,
        matrices: Part | None = None,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        name = self._named(name)
        return self._whole.turned_stack(
            name, shape, stripe=stripe, matrices=matrices, rows=rows, columns=columns
        )

    def turned_vectors(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        stripe: Stripe = EVERY_ROW,
        matrices: Part | None = None,
        part: Part | None = None,
    ) -> Tensor:
        name = self._named(name)
        return self._whole.turned_vectors(name, shape, stripe=stripe, matrices=matrices, part=part)

    def adapted(
        self,
        module: str,
        x: Tensor,
        y: Tensor,
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        return self._whole.adapted(self._named(module), x, y, rows=rows, columns=columns)

    def adapted_embedding(
        self, module: str, ids: Tensor, y: Tensor, count: int, *, scale: float = 1.0
    ) -> Tensor:
        return self._whole.adapted_embedding(self._named(module), ids, y, count, scale=scale)

    def adapted_experts(
        self,
        layer: ExpertLayer,
        ids: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        layer = layer.within(self._named(""))
        return self._whole.adapted_experts(layer, ids, x, y, rows=rows, columns=columns)

    def head_matrices(self, module: str, width: int, *, heads: Part, rows: Part) -> Tensor:
        return self._whole.head_matrices(self._named(module), width, heads=heads, rows=rows)

    def patches(self, module: str, shape: tuple[int, ...]) -> Tensor:
        return self._whole.patches(self._named(module), shape)

    def reshaped(self, name: str, stored: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
        return self._whole.reshaped(self._named(name), stored, shape)

    def column_stripe(self, name: str, shape: tuple[int, ...], stripe: Stripe) -> Tensor:
        return self._whole.column_stripe(self._named(name), shape, stripe)

    def vector(
        self,
        name: str,
        length: int,
        *,
        part: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        return self._whole.vector(self._named(name), length, part=part, stored=stored)

    def small(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        row_factors: Sequence[float] = (),
        row_order: Sequence[int] = (),
    ) -> Tensor:
        return self._whole.small(
            self._named(name), shape, row_factors=row_factors, row_order=row_order
        )

    def vectors(self, names: Sequence[str | None], length: int, *, table: bool = False) -> Tensor:
        named = [None if name is None else self._named(name) for name in names]
        return self._whole.vectors(named, length, table=table)

    def shares(self, name: str, length: int, *, of_previous: bool = False) -> Tensor:
        return self._whole.shares(self._named(name), length, of_previous=of_previous)

    def small_columns(
        self, name: str, shape: tuple[int, int], *, columns: Part, rows: Sequence[int]
    ) -> Tensor:
        return self._whole.small_columns(self._named(name), shape, columns=columns, rows=rows)

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._whole.integers(self._named(name), shape)

    def inverse_norms(self, name: str, shape: tuple[int, int]) -> Tensor:
        return self._whole.inverse_norms(self._named(name), shape)

    def normalized_taps(
        self, module: str, norm: str, shape: tuple[int, int], eps: float
    ) -> tuple[Tensor, Tensor]:
        return self._whole.normalized_taps(self._named(module), self._named(norm), shape, eps)

    def exponentials(self, name: str, factors: Sequence[float]) -> Tensor:
        return self._whole.exponentials(self._named(name), factors)

    def block_elements(self, name: str) -> int:
        return self._whole.block_elements(self._named(name))

    def note(self, text: str) -> None:
        self._whole.note(text)

    def row(self, name: str, index: int, shape: tuple[int, int]) -> Tensor:
        return self._whole.row(self._named(name), index, shape)

    def combined_rows(
        self, name: str, shape: tuple[int, int], sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        return self._whole.combined_rows(self._named(name), shape, sums)

    def number(self, name: str, *, finite: bool = True) -> float:
        return self._whole.number(self._named(name), finite=finite)

    def kv_scales(self, module: str) -> tuple[float, float]:
        return self._whole.kv_scales(self._named(module))

    def index(self, name: str, values: npt.NDArray[np.int32]) -> Tensor:
        return self._whole.index(name, values)

    def resampled(
        self,
        name: str,
        stored: tuple[int, ...],
        shares: npt.NDArray[np.float32],
        shape: tuple[int, ...],
    ) -> Tensor:
        return self._whole.resampled(self._named(name), stored, shares, shape)

    def head_tables(self, tables: HeadTables) -> Tensor:
        return self._whole.head_tables(tables.renamed(self._named))

    def constant(self, name: str, values: Constant) -> Tensor:
        return self._whole.constant(self._named(name), values)
