"""The interface of weights for layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import EVERY_ROW, Part, Shard, Stripe
from pagemill.ops.trace import Tensor, Trace

Constant = Sequence[float] | Sequence[Sequence[float]]
"""A vector or a matrix of numbers that fit f32."""


class Weights(Protocol):
    """Declares named tensors of one model in one trace; implemented by `quantization.binder`."""

    trace: Trace
    shard: Shard
    """The rank that the trace is for: layers that divide use its part."""

    def within(self, prefix: str, *, behind: str = "") -> Weights:
        """The weights of a model that is part of this one, under the names of the standalone model:
        those of `vector("norm.weight", ...)` are those of `prefix` and `norm.weight` here. With
        `behind`, names that begin with it have `prefix` behind that, and other names are the same.
        """
        ...

    def has(self, name: str) -> bool:
        """True if the model has a tensor of this name."""
        ...

    def claim(self, name: str) -> None:
        """Marks a tensor as used that belongs to another rank: every tensor of a model is used by
        some rank."""
        ...

    def linear(
        self,
        module: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
        transposed: bool = False,
    ) -> Tensor:
        """The weight of the linear layer `module`, [out, in], as it is stored, or a part of it. If
        `transposed`, it is stored as [in, out]."""
        ...

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """The weight `name` of `embedding`, [out, in], as it is stored, or a part of it."""
        ...

    def turned_matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        columns: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        """The matrix `name`, [out, in], or some of its columns, which is stored as [in, out], or in
        the shape `stored`."""
        ...

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
        """The weights of `module` of all experts, [experts, out, in], or some of these `matrices`,
        or a part of each: one tensor
        `<experts>.<module>.weight`, or without `.weight`, also as [experts * out, in] or [experts,
        in, out]; or `<experts>.<i>.<module>.weight` of each expert."""
        ...

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
        """The weights of all experts, `shape` [experts, out, in], or some of these `matrices`, or a
        part of each, in the tensor `name`, which has `stripe.count` such weights row by row in
        turn. It is stored transposed, [experts, in, stripe.count * out]; or in MXFP4, which is not
        transposed."""
        ...

    def turned_vectors(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        stripe: Stripe = EVERY_ROW,
        matrices: Part | None = None,
        part: Part | None = None,
    ) -> Tensor:
        """The biases of `turned_stack`, f32 `shape` [experts, out], or those of some `matrices`, or
        a part of each."""
        ...

    def adapted(
        self,
        module: str,
        x: Tensor,
        y: Tensor,
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """y, what the linear layer `module`, or a part of it, makes of x, with what the adapters of
        a request make of x; y itself in a program without adapters."""
        ...

    def adapted_embedding(
        self, module: str, ids: Tensor, y: Tensor, count: int, *, scale: float = 1.0
    ) -> Tensor:
        """As `adapted`, for y, the rows `ids` i32 [N] of an embedding with `count` rows, times
        `scale`."""
        ...

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
        """As `adapted`, for y [N, choices, ...], what the experts `ids` make of x in a layer."""
        ...

    def head_matrices(self, module: str, width: int, *, heads: Part, rows: Part) -> Tensor:
        """The weight of the linear layer `module`, [heads.total * rows.total, width], as a matrix
        for each head, and of those a part: [heads.size, rows.size, width]."""
        ...

    def patches(self, module: str, shape: tuple[int, ...]) -> Tensor:
        """The weight of the convolution `module` over patches that do not overlap, `shape` [out,
        channels, height, width], as a matrix [out, channels * height * width]."""
        ...

    def reshaped(self, name: str, stored: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
        """The tensor `name`, stored in the shape `stored`, as a matrix of `shape`."""
        ...

    def column_stripe(self, name: str, shape: tuple[int, ...], stripe: Stripe) -> Tensor:
        """Column `stripe.index` of every `stripe.count` columns of the matrix `name` of `shape`, or
        of a convolution's as `patches` has it: [shape[0], columns / stripe.count]."""
        ...

    def vector(
        self,
        name: str,
        length: int,
        *,
        part: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        """A norm or bias, f32 [length], or a part of it; stored as a vector, or in the shape
        `stored`."""
        ...

    def small(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        row_factors: Sequence[float] = (),
        row_order: Sequence[int] = (),
    ) -> Tensor:
        """A small weight that is neither matrix nor vector, f32 of `shape`; if factors are given,
        each row times its factor, and if an order is, these rows one after the other."""
        ...

    def vectors(self, names: Sequence[str | None], length: int, *, table: bool = False) -> Tensor:
        """Vectors of these names and this length one after the other, f32 [len(names) * length],
        or as a table, f32 [len(names), length]. None is one of zeros, and not the first."""
        ...

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Whole numbers that are no weights, such as the experts of each token id, stored as
        integers or as real numbers: f32 of `shape`, exactly."""
        ...

    def inverse_norms(self, name: str, shape: tuple[int, int]) -> Tensor:
        """1 over the Euclidean norm of each row of the matrix `name`: f32 [rows]."""
        ...

    def normalized_taps(
        self, module: str, norm: str, shape: tuple[int, int], eps: float, *, bias: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The depthwise convolution `module` of `shape` [channels, taps], with a `bias` or none,
        with the batch norm `norm` behind it, as one with a bias: f32 of `shape`, and [channels]."""
        ...

    def exponentials(self, name: str, factors: Sequence[float]) -> Tensor:
        """Each of `factors` times e to the power of its entry of the vector `name`: f32
        [len(factors)]."""
        ...

    def softplus(self, name: str, length: int, *, repeats: int = 1) -> Tensor:
        """ln(1 + e^v) of each entry v of a vector, so many times one after the other: f32 [length *
        repeats]."""
        ...

    def block_elements(self, name: str) -> int:
        """The number of elements of a row that are stored together: columns divide at its
        multiples."""
        ...

    def note(self, text: str) -> None:
        """Record a note for the operator on how the model was built, once each."""
        ...

    def combined_rows(
        self, name: str, shape: tuple[int, int], sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        """Sums of some rows of the matrix `name` of `shape`, each row times a factor: f32 [sums,
        shape[1]]."""
        ...

    def number(self, name: str, *, finite: bool = True) -> float:
        """The only element of a tensor, as a number of the program; infinite only if it need not be
        `finite`."""
        ...

    def kv_scales(self, module: str) -> tuple[float, float]:
        """Scales of keys and of values that the model states for an fp8 cache of the attention
        layer `module`: what is stored times its scale is the key or value. 1 if it states none."""
        ...

    def computed(
        self,
        name: str,
        shape: tuple[int, ...],
        stored: Mapping[str, tuple[int, ...]],
        compute: Callable[..., npt.NDArray[np.float32]],
    ) -> Tensor:
        """The f32 constant `name` of `shape`: what `compute` returns for the tensors of these names
        and shapes, in their order, each as f32; see `layers.computed`."""
        ...

    def head_tables(self, tables: HeadTables) -> Tensor:
        """The `tables`, f32 [heads, rows, head_dim]. They become a constant of the program."""
        ...

    def constant(self, name: str, values: Constant) -> Tensor:
        """The f32 constant `name`, computed from the configuration; declared once."""
        ...

    def index(self, name: str, values: npt.NDArray[np.int32]) -> Tensor:
        """The i32 constant `name` of indices, likewise."""
        ...
