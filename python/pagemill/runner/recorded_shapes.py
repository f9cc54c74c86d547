"""The tensors that a model reads, by name and shape, from its configuration alone.

shapes = recorded_shapes(model, tail)      # {"model.norm.weight": (576,), ...}
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pagemill.layers.base import Constant
from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import EVERY_ROW, Part, Shard, Stripe
from pagemill.ops.trace import Tensor, Trace
from pagemill.weights.name_prefixes import NamePrefixes

_DTYPE = "f32"  # no kernel is chosen for what is traced here


class ShapeRecorder:
    """The `Weights` of a checkpoint that has every tensor that is asked for, and of tensors that a
    model reads only if they exist, none. `shapes` are the stored ones, under whole names."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.shard = Shard()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._tensors: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._numbers = itertools.count()  # a tensor may be used in several shapes
        self._file = self.trace.file("recorded")
        self._names = NamePrefixes()

    def within(self, prefix: str, *, behind: str = "") -> ShapeRecorder:
        part = copy.copy(self)
        part._names = self._names.within(prefix, behind)
        return part

    def _record(self, name: str, stored: Sequence[int]) -> None:
        self.shapes[self._names.whole(name)] = tuple(stored)

    def _read(self, name: str, stored: Sequence[int], used: Sequence[int] | None = None) -> Tensor:
        """Records the tensor `name` of shape `stored`, and returns what is `used` of it."""
        self._record(name, stored)
        return self._made(name, tuple(stored if used is None else used))

    def _made(self, name: str, shape: tuple[int, ...]) -> Tensor:
        name = self._names.whole(name)
        if (name, shape) not in self._tensors:
            self._tensors[name, shape] = self._declare(name, shape)
        return self._tensors[name, shape]

    def _declare(self, name: str, shape: tuple[int, ...]) -> Tensor:
        unique = f"{name}#{next(self._numbers)}"
        return self.trace.weight(unique, _DTYPE, shape, file=self._file, offset=0)

    def has(self, name: str) -> bool:
        return self._names.whole(name) in self.shapes

    def claim(self, name: str) -> None:
        """Records an empty tensor: nothing reads its values."""
        self.shapes.setdefault(self._names.whole(name), (0,))

    def linear(
        self,
        module: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
        transposed: bool = False,
    ) -> Tensor:
        stored = (shape[1], shape[0]) if transposed else shape
        return self._read(f"{module}.weight", stored, _part(shape, rows, columns))

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        return self._read(name, shape, _part(shape, rows, columns))

    def turned_matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        columns: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        return self._read(name, stored or (shape[1], shape[0]), _part(shape, None, columns))

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
        count = shape[0] if matrices is None else matrices.size
        used = (count, *_part(shape[1:], rows, columns))
        if matrices is None or matrices.whole:
            return self._read(f"{experts}.{module}.weight", shape, used)
        names = [f"{experts}.{i}.{module}.weight" for i in matrices.indices]
        for name in names:
            self._record(name, shape[1:])
        return self._made(names[0], used)

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
        count = shape[0] if matrices is None else matrices.size
        stored = (shape[0], shape[2], stripe.count * shape[1])
        return self._read(name, stored, (count, *_part(shape[1:], rows, columns)))

    def turned_vectors(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        stripe: Stripe = EVERY_ROW,
        matrices: Part | None = None,
        part: Part | None = None,
    ) -> Tensor:
        stored = (shape[0], stripe.count * shape[1])
        return self._read(name, stored, _part(shape, matrices, part))

    def adapted(
        self,
        module: str,
        x: Tensor,
        y: Tensor,
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        del module, x, rows, columns
        return y

    def adapted_embedding(
        self, module: str, ids: Tensor, y: Tensor, count: int, *, scale: float = 1.0
    ) -> Tensor:
        del module, ids, count, scale
        return y

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
        del layer, ids, x, rows, columns
        return y

    def head_matrices(self, module: str, width: int, *, heads: Part, rows: Part) -> Tensor:
        stored = (heads.total * rows.total, width)
        return self._read(f"{module}.weight", stored, (heads.size, rows.size, width))

    def patches(self, module: str, shape: tuple[int, ...]) -> Tensor:
        return self._read(f"{module}.weight", shape, (shape[0], math.prod(shape[1:])))

    def reshaped(self, name: str, stored: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
        return self._read(name, stored, shape)

    def column_stripe(self, name: str, shape: tuple[int, ...], stripe: Stripe) -> Tensor:
        return self._read(name, shape, (shape[0], math.prod(shape[1:]) // stripe.count))

    def vector(
        self,
        name: str,
        length: int,
        *,
        part: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        return self._read(name, stored or (length,), (length if part is None else part.size,))

    def small(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        row_factors: Sequence[float] = (),
        row_order: Sequence[int] = (),
    ) -> Tensor:
        del row_factors
        return self._read(name, shape, (len(row_order) or shape[0], *shape[1:]))

    def vectors(self, names: Sequence[str | None], length: int, *, table: bool = False) -> Tensor:
        for name in filter(None, names):
            self._record(name, (length,))
        shape = (len(names), length) if table else (len(names) * length,)
        return self._made(f"{names[0]} to {names[-1]}", shape)

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._read(name, shape)

    def inverse_norms(self, name: str, shape: tuple[int, int]) -> Tensor:
        self._record(name, shape)
        return self._made(f"{name} norms", shape[:1])

    def normalized_taps(
        self, module: str, norm: str, shape: tuple[int, int], eps: float, *, bias: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._record(f"{module}.weight", (shape[0], 1, shape[1]))
        if bias:
            self._record(f"{module}.bias", shape[:1])
        for part in ("weight", "bias", "running_mean", "running_var"):
            self._record(f"{norm}.{part}", shape[:1])
        return self._made(f"{module} taps", shape), self._made(f"{norm} shift", shape[:1])

    def exponentials(self, name: str, factors: Sequence[float]) -> Tensor:
        return self._read(name, (len(factors),))

    def softplus(self, name: str, length: int, *, repeats: int = 1) -> Tensor:
        return self._read(name, (length,), (length * repeats,))

    def block_elements(self, name: str) -> int:
        del name
        return 1

    def note(self, text: str) -> None:
        """There is nothing to say about weights that do not exist."""

    def combined_rows(
        self, name: str, shape: tuple[int, int], sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        return self._read(name, shape, (len(sums), shape[1]))

    def number(self, name: str, *, finite: bool = True) -> float:
        del finite
        self._record(name, (1,))
        return 1.0

    def kv_scales(self, module: str) -> tuple[float, float]:
        del module
        return 1.0, 1.0

    def computed(
        self,
        name: str,
        shape: tuple[int, ...],
        stored: Mapping[str, tuple[int, ...]],
        compute: Callable[..., npt.NDArray[np.float32]],
    ) -> Tensor:
        del compute
        for each, its in stored.items():
            self._record(each, its)
        return self._made(name, shape)

    def head_tables(self, tables: HeadTables) -> Tensor:
        for name, shape in tables.stored_shapes().items():
            self._record(name, shape)
        return self._made(f"{tables.module} tables", tables.result_shape)

    def constant(self, name: str, values: Constant) -> Tensor:
        rows = len(values)
        first = values[0]
        shape = (rows,) if isinstance(first, (int, float)) else (rows, len(first))
        return self._made(name, shape)

    def index(self, name: str, values: npt.NDArray[np.int32]) -> Tensor:
        if (name, values.shape) not in self._tensors:
            made = self.trace.constant(name, "i32", values.shape, values.tobytes())
            self._tensors[name, values.shape] = made
        return self._tensors[name, values.shape]


def _part(shape: tuple[int, int], rows: Part | None, columns: Part | None) -> tuple[int, int]:
    return (
        shape[0] if rows is None else rows.size,
        shape[1] if columns is None else columns.size,
    )
