"""Multi-head latent attention (arXiv 2405.04434, 2.1) over a paged cache of latents.

Keys and values of all heads are projections of one latent vector per token; the cache contains only
that and one rotated key. The projection of keys is applied to the queries instead, and that of
values to the results, for prompts and decoded tokens alike (`cc/ops/latent_attention` has the
cost).
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.indexer import Indexer, chosen_tokens
from pagemill.layers.linear import linear
from pagemill.layers.rotary import QueryGrowth, Rotary
from pagemill.ops.program import GroupEntry
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

GROUP = GroupEntry("mla", "mla")
_SIGMOID = ops.ActivationKind.SIGMOID


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Sizes of a head: `nope` unrotated and `rope` rotated elements of a query or key, `value`
    elements of a value; `latent` elements of the vector from which keys and values are projected,
    `query` of the one for queries (None: the hidden state); `scale` multiplies scores,
    `query_scale` and `latent_scale` the normalized vectors; `growth` scales queries by their
    position; `sinks` names the vector of logits that join the softmax of each head, `gate` the
    linear layer whose sigmoid multiplies the result, with a row for each element or, if
    `gate_by_head`, for each head, `rope_norm` the norm of keys in front of their rotation, if there
    are such; a query sees `window` tokens, 0 = all. With `gated_queries`, the layer of queries has
    for each head the rows of such a gate, too; it reads the vectors for queries normalized and,
    behind these, as they are."""

    heads: int
    nope: int
    rope: int
    value: int
    latent: int
    query: int | None
    scale: float
    eps: float
    query_scale: float = 1.0
    latent_scale: float = 1.0
    growth: QueryGrowth | None = None
    sinks: str | None = None
    gate: str | None = None
    gate_by_head: bool = False
    gated_queries: bool = False
    rope_norm: str | None = None
    window: int = 0


def latent_attention(
    weights: Weights,
    prefix: str,
    x: Tensor,
    shape: LatentShape,
    rotary: Rotary | None,
    cache_name: str,
    *,
    bias: bool = False,
    sparse: Indexer | Tensor | None = None,
    width: int | None = None,
) -> Tensor:
    """x [T, H] -> [T, width], by default H, attended over a new cache; without `rotary`, keys have
    no positions. Queries see all tokens up to theirs, or those that an indexer chooses or has
    chosen (`sparse`). Ranks divide the heads; each has all latents.

    Weights: `<prefix>.q_proj`, or `.{q_a_proj,q_a_layernorm,q_b_proj}`; `.kv_a_proj_with_mqa`,
    `.kv_a_layernorm`, `.kv_b_proj`, or `.k_b_proj` and `.v_b_proj`, and `.o_proj`; with biases of
    what reads or writes the hidden state if `bias` (of `q_proj` never); `.indexer`; those that the
    shape names.
    """
    out = f"{prefix}.o_proj"
    results = AttentionShape(shape.heads, shape.heads, shape.value, shape.scale)
    results = attention.divide(weights, results, out)
    heads = results.shard.part(shape.heads)
    queries, plain = x, x
    if shape.query is not None:
        queries, plain = _query_latents(weights, prefix, x, shape, bias=bias)
    gate: Tensor | None = None
    if shape.gated_queries:
        both = ops.concat(queries, plain)
        q, gate = _gated_queries(weights, f"{prefix}.q_b_proj", both, shape, heads)
    else:
        q = _queries(weights, prefix, queries, shape, heads)
    if shape.growth is not None:
        assert rotary is not None
        q = rotary.grown(q, shape.growth)
    q_nope, q_rope = ops.split(q, shape.nope)
    latent, k_rope = _latents(weights, prefix, x, shape, bias=bias)
    chosen = None if isinstance(sparse, Indexer) else sparse
    if isinstance(sparse, Indexer):
        assert rotary is not None
        name, cache_of_index = f"{prefix}.indexer", f"index_{cache_name}"
        chosen = chosen_tokens(weights, name, x, queries, sparse, rotary, cache_of_index)
    if rotary is not None:
        q_rope, k_rope = rotary(q_rope, k_rope)
    row = (shape.latent + shape.rope, 1, shape.rope)
    group = x.trace.kv_group(shape.window) if shape.window else x.trace.group(GROUP)
    cache = x.trace.cache(cache_name, group, row, layout="latent", window=shape.window)
    ops.latent_write(latent, k_rope, cache)

    if weights.has(f"{prefix}.k_b_proj.weight"):
        keys, values = _apart(weights, prefix, shape, heads)
        absorbed = ops.head_linear(q_nope, keys)
    else:
        keys, values = projections(weights, prefix, shape, heads)
        absorbed = ops.head_linear(q_nope, keys, transposed=True)
    if shape.sinks is None:
        attended = ops.latent_attention(absorbed, q_rope, cache, scale=shape.scale, chosen=chosen)
    else:
        attended, sums = ops.latent_attention_with_sums(
            absorbed, q_rope, cache, scale=shape.scale, chosen=chosen
        )
        sinks = weights.vector(f"{prefix}.{shape.sinks}", shape.heads, part=heads)
        attended = ops.merge_attention(sinks, (attended, sums))
    values = ops.head_linear(attended, values)
    if gate is not None:
        values = ops.gated_activation(gate, values, _SIGMOID)
    if shape.gate is not None:
        values = _gated(weights, f"{prefix}.{shape.gate}", x, values, shape, heads)
    width = x.width if width is None else width
    return attention.output(weights, out, values, results, width, bias=bias)


def _gated(
    weights: Weights, name: str, x: Tensor, values: Tensor, shape: LatentShape, heads: Part
) -> Tensor:
    """values [T, heads, value] times what the gate `name` makes of x."""
    if shape.gate_by_head:
        factors = linear(weights, name, x, (heads.size,), rows=heads, dtype="f32")
        return ops.scale_groups(values, ops.activation(factors, _SIGMOID))
    row_shape = (heads.size, shape.value)
    gate = linear(weights, name, x, row_shape, rows=heads.times(shape.value))
    return ops.gated_activation(gate, values, _SIGMOID)


def projections(
    weights: Weights, prefix: str, shape: LatentShape, heads: Part
) -> tuple[Tensor, Tensor]:
    """Of each head, the rows of the matrix that projects a latent to keys, [heads, nope, latent],
    and to values, [heads, value, latent]."""
    total = shape.nope + shape.value
    keys, values = Part(0, shape.nope, total), Part(shape.nope, total, total)
    name = f"{prefix}.kv_b_proj"
    return (
        weights.head_matrices(name, shape.latent, heads=heads, rows=keys),
        weights.head_matrices(name, shape.latent, heads=heads, rows=values),
    )


def _apart(weights: Weights, prefix: str, shape: LatentShape, heads: Part) -> tuple[Tensor, Tensor]:
    """The two projections of each head as GGUF has them: that to keys transposed, [heads, latent,
    nope], and that to values, [heads, value, latent]."""
    latent, value = (Part(0, size, size) for size in (shape.latent, shape.value))
    return (
        weights.head_matrices(f"{prefix}.k_b_proj", shape.nope, heads=heads, rows=latent),
        weights.head_matrices(f"{prefix}.v_b_proj", shape.latent, heads=heads, rows=value),
    )


def _query_latents(
    weights: Weights, prefix: str, x: Tensor, shape: LatentShape, *, bias: bool
) -> tuple[Tensor, Tensor]:
    """The vectors of which queries are projected, [T, query], normalized and as they are."""
    assert shape.query is not None
    plain = linear(weights, f"{prefix}.q_a_proj", x, (shape.query,), bias=bias)
    x = norm.rms_norm(weights, f"{prefix}.q_a_layernorm", plain, shape.eps)
    return ops.scale(x, shape.query_scale), plain


def _queries(weights: Weights, prefix: str, x: Tensor, shape: LatentShape, heads: Part) -> Tensor:
    """[T, heads, nope + rope] of hidden states, or of the latents of queries."""
    size = shape.nope + shape.rope
    rows = Part(heads.begin * size, heads.end * size, heads.total * size)
    name = "q_proj" if shape.query is None else "q_b_proj"
    return linear(weights, f"{prefix}.{name}", x, (heads.size, size), rows=rows)


def _gated_queries(
    weights: Weights, name: str, x: Tensor, shape: LatentShape, heads: Part
) -> tuple[Tensor, Tensor]:
    """As `_queries`, by the layer `name`, and gates [T, heads, value]."""
    size = shape.nope + shape.rope + shape.value
    y = linear(weights, name, x, (heads.size, size), rows=heads.times(size))
    return ops.split(y, size - shape.value)


def _latents(
    weights: Weights, prefix: str, x: Tensor, shape: LatentShape, *, bias: bool
) -> tuple[Tensor, Tensor]:
    """The normalized latents [T, latent], and keys before rotation [T, 1, rope]."""
    name, size, total = f"{prefix}.kv_a_proj_with_mqa", shape.latent, shape.latent + shape.rope
    latent = linear(weights, name, x, (size,), bias=bias, rows=Part(0, size, total))
    rope = linear(weights, name, x, (1, shape.rope), bias=bias, rows=Part(size, total, total))
    if shape.rope_norm is not None:
        rope = norm.rms_norm(weights, f"{prefix}.{shape.rope_norm}", rope, shape.eps)
    latent = norm.rms_norm(weights, f"{prefix}.kv_a_layernorm", latent, shape.eps)
    return ops.scale(latent, shape.latent_scale), rope
