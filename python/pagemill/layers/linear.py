"""A linear layer: `<name>.weight` and, if it has one, `<name>.bias`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.program import ACT
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


def linear(
    weights: Weights,
    name: str,
    x: Tensor,
    row_shape: Sequence[int],
    *,
    bias: bool = False,
    rows: Part | None = None,
    dtype: str = ACT,
    transposed: bool = False,
    adapted_as: str | None = None,
) -> Tensor:
    """x [N, ..., in] -> [N, *row_shape] of `dtype`; `row_shape` is (out,) or (heads, head_dim).

    With `rows` only these outputs are computed, and `row_shape` is theirs (column parallel). The
    weight is stored as [out, in], or `transposed`. Adapters know the layer as `adapted_as`, by
    default under its name.
    """
    out = 1
    for dim in row_shape:
        out *= dim
    total = out if rows is None else rows.total
    vector = weights.vector(f"{name}.bias", total, part=rows) if bias else None
    weight = weights.linear(name, (total, x.width), rows=rows, transposed=transposed)
    y = ops.linear(x, weight, vector, row_shape=row_shape, dtype=dtype)
    return weights.adapted(adapted_as or name, x, y, rows=rows)


def linear_of_rows(
    weights: Weights,
    name: str,
    x: Tensor,
    features: int,
    row_shape: Sequence[int],
    *,
    bias: bool = True,
    rows: Part | None = None,
) -> Tensor:
    """x [T, ...] with rows of `features` elements -> [T, *row_shape], of each row as many outputs
    as the layer has, or those of `rows`. Adapters do not know such layers."""
    out = math.prod(row_shape) * features // x.width
    total = out if rows is None else rows.total
    vector = weights.vector(f"{name}.bias", total, part=rows) if bias else None
    weight = weights.linear(name, (total, features), rows=rows)
    return ops.linear(x, weight, vector, row_shape=row_shape)


def linear_of_parts(
    weights: Weights, name: str, x: Tensor, rows: Sequence[Part], *, bias: bool = False
) -> Tensor:
    """As `linear`, for rows in several places: a product for each part, side by side, [N, rows]."""
    return ops.concat_all(
        [linear(weights, name, x, (part.size,), bias=bias, rows=part) for part in rows]
    )


def row_parallel(
    weights: Weights,
    name: str,
    x: Tensor,
    out: int,
    *,
    columns: Part,
    bias: bool = False,
    row_shape: Sequence[int] | None = None,
    transposed: bool = False,
) -> Tensor:
    """x [N, ..., columns.size], this rank's part of the inputs -> [N, out] of all ranks together,
    or [N, *row_shape].

    A group of one, or an input that is complete on every rank, needs no exchange.
    """
    # Added once to the sum.
    has_bias = bias and (columns.whole or weights.shard.rank == 0)
    vector = weights.vector(f"{name}.bias", out) if has_bias else None
    if bias and not has_bias:
        weights.claim(f"{name}.bias")
    weight = weights.linear(name, (out, columns.total), columns=columns, transposed=transposed)
    y = ops.linear(x, weight, vector, row_shape=row_shape)
    y = weights.adapted(name, x, y, columns=columns)
    return y if columns.whole else ops.all_reduce(y, shard=weights.shard)


def row_parallel_of_parts(
    weights: Weights, name: str, x: Tensor, out: int, *, columns: Sequence[Part]
) -> Tensor:
    """As `row_parallel`, for x [N, width] whose inputs are columns in several places: a product for
    each part, added before the exchange."""
    if len(columns) == 1:
        return row_parallel(weights, name, x, out, columns=columns[0])
    products: list[Tensor] = []
    for index, part in enumerate(columns, 1):
        own, x = ops.split(x, part.size) if index < len(columns) else (x, x)
        y = ops.linear(own, weights.linear(name, (out, part.total), columns=part))
        products.append(weights.adapted(name, own, y, columns=part))
    return ops.all_reduce(reduce(ops.add, products), shard=weights.shard)


def own_columns(x: Tensor, columns: Part, row_shape: Sequence[int]) -> Tensor:
    """x [N, columns.total], complete on every rank -> [N, *row_shape], this rank's part of it."""
    if columns.begin:
        last = columns.end == columns.total
        _, x = ops.split(x, columns.begin, row_shapes=(None, row_shape if last else None))
    if columns.end < columns.total:
        x, _ = ops.split(x, columns.size, row_shapes=(row_shape, None))
    return x


def divide_evenly(weights: Weights, outs: Sequence[str], count: int, size: int, what: str) -> Part:
    """This rank's part of `count` heads or groups with `size` features each, which are the columns
    of each of the linear layers `outs`. All of them if they do not divide evenly, with a note on
    `what` every rank computes whole then."""
    ranks, whole = weights.shard.ranks, Part(0, count, count)
    if ranks == 1:
        return whole
    blocks = {out: weights.block_elements(f"{out}.weight") for out in outs}
    cut = [out for out, block in blocks.items() if count // ranks * size % block]
    if count % ranks:
        why = f"{count} do not divide among {ranks} ranks"
    elif cut:
        why = f"a rank's part of {cut[0]} is not a whole number of blocks of {blocks[cut[0]]}"
    else:
        return weights.shard.part(count)
    weights.note(f"every rank computes whole {what}: {why}")
    return whole
