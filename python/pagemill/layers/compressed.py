"""The attention of DeepSeek-V4 (section 2.3): one head of keys, which are also the values. A query
sees the latest tokens, and rows that each stand for m tokens: all of them, or those that an indexer
chooses. Rows have a KV group of their own for each m (`cc/ops/compress_tokens`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import CHOSEN, name_in_layer
from pagemill.layers.state_space import state_cache
from pagemill.ops.program import GroupEntry
from pagemill.ops.shard import Part
from pagemill.ops.trace import Cache, Tensor


@dataclass(frozen=True, slots=True)
class CompressedIndexer:
    """`heads` of `size` elements, which choose `choices` rows for each query."""

    heads: int
    size: int
    choices: int


@dataclass(frozen=True, slots=True)
class Compression:
    """Rows of `tokens` tokens each, in which those of neighbouring rows overlap if there is an
    `indexer`."""

    tokens: int
    indexer: CompressedIndexer | None = None

    @property
    def parts(self) -> int:
        return 1 if self.indexer is None else 2


@dataclass(frozen=True, slots=True)
class CompressedShape:
    """`heads` queries of `size` elements, projected from vectors of `query`; keys of the last
    `window` tokens; results are projected in `groups` of heads to `group_rank` elements each."""

    heads: int
    size: int
    query: int
    window: int
    groups: int
    group_rank: int
    eps: float


def compressed_attention(
    weights: Weights,
    prefix: str,
    x: Tensor,
    shape: CompressedShape,
    rotaries: tuple[Rotary, Rotary],
    compression: Compression | None,
    cache_name: str,
) -> Tensor:
    """x [T, H] -> [T, H], attended over new caches. `rotaries` are the rotation of the last
    elements of a head by its position, and its inverse: values are keys, and results must not
    depend on where they are.

    Weights: `<prefix>.{wq_a,q_norm,wq_b,wkv,norm,attn_sink,wo_a,wo_b}`; of rows
    `<prefix>.compressor.{wkv,wgate,ape,norm}`, and of an indexer
    `<prefix>.indexer.{wq_b,weights_proj}` and `<prefix>.indexer.compressor`.
    """
    if weights.shard.ranks > 1:
        weights.note("every rank computes the whole attention")
    rotary, inverse = rotaries
    latents = linear(weights, f"{prefix}.wq_a", x, (shape.query,))
    latents = norm.rms_norm(weights, f"{prefix}.q_norm", latents, shape.eps)
    q = linear(weights, f"{prefix}.wq_b", latents, (shape.heads, shape.size))
    q = norm.rms_norm(weights, prefix, q, shape.eps, weight=False)
    kv = linear(weights, f"{prefix}.wkv", x, (1, shape.size))
    kv = norm.rms_norm(weights, f"{prefix}.norm", kv, shape.eps)
    q, kv = rotary(q, kv)
    scale = shape.size**-0.5
    group = x.trace.kv_group(shape.window)
    row = (shape.size, 1, shape.size - rotary.begin)
    cache = x.trace.cache(cache_name, group, row, layout="latent", window=shape.window)
    ops.latent_write(kv, None, cache)
    y, sums = ops.latent_attention_with_sums(q, None, cache, scale=scale)
    if compression is None:
        parts = [(inverse.queries(y), sums)]
    else:
        rows, chosen = _compress(weights, prefix, x, latents, shape, rotary, compression, cache)
        of_rows, sums_of_rows = ops.latent_attention_with_sums(
            q, None, rows, scale=scale, chosen=chosen
        )
        y, of_rows = inverse(y, of_rows)
        parts = [(y, sums), (of_rows, sums_of_rows)]
    sinks = weights.vector(f"{prefix}.attn_sink", shape.heads)
    in_group = shape.heads // shape.groups * shape.size
    y = ops.merge_attention(sinks, *parts, row_shape=(shape.groups, in_group))
    groups, rank = (Part(0, size, size) for size in (shape.groups, shape.group_rank))
    y = ops.head_linear(
        y, weights.head_matrices(f"{prefix}.wo_a", in_group, heads=groups, rows=rank)
    )
    return linear(weights, f"{prefix}.wo_b", y, (x.width,))


def _compress(
    weights: Weights,
    prefix: str,
    x: Tensor,
    latents: Tensor,
    shape: CompressedShape,
    rotary: Rotary,
    compression: Compression,
    cache: Cache,
) -> tuple[Cache, Tensor | None]:
    """The new cache of a layer's rows, and the rows that each query has chosen, if it does."""
    rows = _rows(
        weights,
        f"{prefix}.compressor",
        x,
        (shape.size, compression.tokens, shape.size - rotary.begin),
        shape.eps,
        rotary,
        compression,
        f"rows_{cache.name}",
    )
    indexer = compression.indexer
    if indexer is None:
        return rows, None
    rotary = replace(rotary, begin=rotary.begin + indexer.size - shape.size)
    name = f"{prefix}.indexer"
    keys = _rows(
        weights,
        f"{name}.compressor",
        x,
        (indexer.size, compression.tokens, indexer.size),
        shape.eps,
        rotary,
        compression,
        f"index_{cache.name}",
    )
    q = rotary.queries(linear(weights, f"{name}.wq_b", latents, (indexer.heads, indexer.size)))
    # Positive factors of scores change no choice.
    shares = linear(weights, f"{name}.weights_proj", x, (indexer.heads,), dtype="f32")
    chosen = ops.select_tokens(q, None, shares, keys, choices=indexer.choices)
    return rows, name_in_layer(chosen, CHOSEN)


def _rows(
    weights: Weights,
    name: str,
    x: Tensor,
    dims: tuple[int, int, int],
    eps: float,
    rotary: Rotary,
    compression: Compression,
    cache_name: str,
) -> Cache:
    """A new cache of `dims`, in which rows of x are stored, rotated by the position of their first
    token."""
    size, tokens, _ = dims
    width = compression.parts * size
    y = ops.compress_tokens(
        linear(weights, f"{name}.wkv", x, (width,)),
        linear(weights, f"{name}.wgate", x, (width,)),
        weights.small(f"{name}.ape", (tokens, width)),
        state_cache(x.trace, f"sums_{cache_name}", (compression.parts, 3, size)),
    )
    y = norm.rms_norm(weights, f"{name}.norm", y, eps, row_shape=(1, size))
    y = replace(rotary, offset=1 - tokens).queries(y)
    group = x.trace.group(GroupEntry(f"rows_of_{tokens}", "mla"))
    cache = x.trace.cache(cache_name, group, dims, layout="latent")
    ops.latent_write(y, None, cache)
    return cache
