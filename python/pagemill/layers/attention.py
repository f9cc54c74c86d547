"""Attention, over a paged cache or among the tokens of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, own_columns, row_parallel
from pagemill.ops.shard import Part, Shard
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """`scale` multiplies scores; `window` is the number of tokens a query attends to (0 = all),
    which begins anew at each multiple of it if `chunked`; `soft_cap` bounds scores, and those of
    positions after `grows_from` grow with the position's logarithm (0 = none, see
    `ops.paged_attention`); values have `value_dim` elements a head if they are narrower than keys:
    the cache holds zeros behind them; `both_ways`: a query attends to the tokens behind it, too,
    and nothing is cached (see `attend_both_ways`); `shard` is the part of the heads that this rank
    computes, by default all (see `divide`); `sees_items`: tokens of a media item or a prompt see
    each other if the program reads `item_ends`."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    soft_cap: float = 0.0
    chunked: bool = False
    value_dim: int | None = None
    grows_from: int = 0
    both_ways: bool = False
    shard: Shard = Shard()
    sees_items: bool = True

    @property
    def values(self) -> int:
        """The elements of a head of v, and of the result."""
        return self.head_dim if self.value_dim is None else self.value_dim

    def features(self, heads: int, width: int | None = None) -> Part:
        """This rank's part of the features of `heads` heads of `width`, by default that of q and k.
        If there are fewer heads than ranks, consecutive ranks have the same one: of 2 heads, ranks
        0 and 1 of 4 have head 0."""
        first = heads * self.shard.rank // self.shard.ranks
        end = first + max(heads // self.shard.ranks, 1)
        width = self.head_dim if width is None else width
        return Part(first * width, end * width, heads * width)


def divide(weights: Weights, shape: AttentionShape, out_name: str) -> AttentionShape:
    """`shape` with the heads divided among the ranks of `weights`, if they divide evenly: every
    rank has as many query heads, and either as many KV heads or one that as many ranks share.
    Otherwise every rank computes all heads. `out_name` is the linear layer after the attention."""
    ranks = weights.shard.ranks
    if ranks == 1:
        return shape
    even_kv_heads = shape.kv_heads % ranks == 0 or ranks % shape.kv_heads == 0
    if shape.heads % ranks or not even_kv_heads:
        weights.note(
            f"every rank computes the whole attention: {shape.heads} heads with"
            f" {shape.kv_heads} KV heads do not divide evenly among {ranks} ranks"
        )
        return shape
    block = weights.block_elements(f"{out_name}.weight")
    features = shape.heads * shape.values // ranks
    if features % block:
        weights.note(
            f"every rank computes the whole attention: {features} features, a rank's part of"
            f" {out_name}, are not a whole number of blocks of {block}"
        )
        return shape
    return replace(shape, shard=weights.shard)


def project_qkv(
    weights: Weights,
    names: Sequence[str],
    x: Tensor,
    shape: AttentionShape,
    *,
    bias: bool = False,
    whole: bool = False,
    transposed: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """x [T, H] -> q [T, heads, head_dim], k [T, kv_heads, head_dim] and v [T, kv_heads, values], of
    this rank's heads.

    `names` are those of three linear layers, or of one with the rows of q, k and v one after the
    other; their weights are stored `transposed` if that is set. If `whole`, q and k are [T, heads *
    head_dim] and [T, kv_heads * head_dim] of the heads of all ranks (see `own_heads`).
    """
    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    widths = (shape.head_dim, shape.head_dim, shape.values)
    sizes = [count * width for count, width in zip(heads, widths, strict=True)]
    total = sum(sizes)

    def project(index: int) -> Tensor:
        of_all = whole and index < 2
        size = heads[index] * widths[index]
        rows = Part(0, size, size) if of_all else shape.features(heads[index], widths[index])
        row_shape = (size,) if of_all else (rows.size // widths[index], widths[index])
        if len(names) == 1:
            first = sum(sizes[:index])
            rows = Part(first + rows.begin, first + rows.end, total)
        name = names[index % len(names)]
        return linear(weights, name, x, row_shape, bias=bias, rows=rows, transposed=transposed)

    return project(0), project(1), project(2)


def own_heads(x: Tensor, shape: AttentionShape, heads: int) -> Tensor:
    """x [T, heads * head_dim] of all ranks -> [T, own heads, head_dim]."""
    part = shape.features(heads)
    return own_columns(x, part, (part.size // shape.head_dim, shape.head_dim))


def project_by_head(
    weights: Weights, name: str, x: Tensor, shape: AttentionShape, *, bias: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """As `project_qkv`, by one linear layer that has, for each KV head, the rows of its queries, of
    its key and of its value. The shape is one that divides KV heads evenly."""
    dim, group = shape.head_dim, shape.heads // shape.kv_heads
    heads = shape.shard.part(shape.kv_heads)
    width = (group + 2) * dim
    rows = Part(heads.begin * width, heads.end * width, heads.total * width)
    fused = linear(weights, name, x, (heads.size, width), bias=bias, rows=rows)
    queries, of_keys = (heads.size * group, dim), (heads.size, dim)
    q, kv = ops.split(fused, group * dim, row_shapes=(queries, None))
    k, v = ops.split(kv, dim, row_shapes=(of_keys, of_keys))
    return q, k, v


def project_q_and_kv(
    weights: Weights, names: Sequence[str], x: Tensor, shape: AttentionShape, *, bias: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """As `project_qkv`, by two linear layers: one of queries, and one that has, for each KV head,
    the rows of its key and of its value."""
    dim = shape.head_dim
    of_queries, of_keys = shape.features(shape.heads), shape.features(shape.kv_heads, 2 * dim)
    row_shape = (of_queries.size // dim, dim)
    q = linear(weights, names[0], x, row_shape, bias=bias, rows=of_queries)
    heads = of_keys.size // (2 * dim)
    kv = linear(weights, names[1], x, (heads, 2 * dim), bias=bias, rows=of_keys)
    k, v = ops.split(kv, dim)
    return q, k, v


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shape: AttentionShape,
    cache_name: str,
    scales: tuple[float, float] = (1.0, 1.0),
    *,
    sinks: Tensor | None = None,
    slopes: Tensor | None = None,
) -> Tensor:
    """Store k and v in a new cache of this name and attend: [T, heads, values]. `scales` are
    those of keys and values in an fp8 cache; `sinks` [heads] join the softmax; `slopes` [heads] are
    those of ALiBi. If `both_ways`, nothing is stored, and there are no slopes. If the program reads
    `item_ends`, the tokens of a media item (`MediaTraits`) or of a prompt (`ModelTraits`) see each
    other."""
    if shape.both_ways:
        return attend_both_ways(q, k, v, shape, sinks=sinks)
    kv_heads = shape.features(shape.kv_heads).size // shape.head_dim
    group = q.trace.kv_group(shape.window)
    dims = (kv_heads, shape.head_dim)
    cache = q.trace.cache(cache_name, group, dims, window=shape.window)
    k_scale, v_scale = scales
    ops.kv_write(k, v, cache, k_scale=k_scale, v_scale=v_scale)
    attended = ops.paged_attention(
        q,
        cache,
        scale=shape.scale,
        chunked=shape.chunked,
        item_ends=shape.sees_items and q.trace.declares_input("item_ends"),
        soft_cap=shape.soft_cap,
        grows_from=shape.grows_from,
        sinks=sinks,
        slopes=slopes,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    return attended if shape.values == shape.head_dim else ops.split(attended, shape.values)[0]


def attend_again(
    q: Tensor, shape: AttentionShape, cache_name: str, scales: tuple[float, float] = (1.0, 1.0)
) -> Tensor:
    """Attend over what another layer has stored in its cache, which is of the same shape: [T,
    heads, head_dim]."""
    cache = q.trace.declared_cache(cache_name)
    k_scale, v_scale = scales
    return ops.paged_attention(
        q,
        cache,
        scale=shape.scale,
        item_ends=shape.sees_items and q.trace.declares_input("item_ends"),
        soft_cap=shape.soft_cap,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def attend_both_ways(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shape: AttentionShape,
    biases: Tensor | None = None,
    *,
    key_biases: Tensor | None = None,
    grid_window: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend among all tokens of a request, or those of the window around each, or in which it is
    if windows are `chunked`; a request must run in one step. [T, heads, head_dim]. `biases`,
    `key_biases`, `grid_window` and `sinks` are those of `ops.attention`."""
    return ops.attention(
        q,
        k,
        v,
        scale=shape.scale,
        causal=False,
        window=shape.window,
        chunked=shape.chunked,
        grid_window=grid_window,
        biases=biases,
        key_biases=key_biases,
        soft_cap=shape.soft_cap,
        sinks=sinks,
    )


def output(
    weights: Weights,
    name: str,
    attended: Tensor,
    shape: AttentionShape,
    hidden: int,
    *,
    bias: bool = False,
    transposed: bool = False,
) -> Tensor:
    """attended [T, heads, values] of this rank's heads -> [T, hidden] of all heads."""
    columns = shape.features(shape.heads, shape.values)
    return row_parallel(
        weights, name, attended, hidden, columns=columns, bias=bias, transposed=transposed
    )
