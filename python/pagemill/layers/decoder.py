"""The attention of decoders."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import QueryGrowth, Rotary
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_CLIP = ops.ActivationKind.IDENTITY


@dataclass(frozen=True, slots=True)
class QkNorm:
    """Norms of queries and keys by the root mean square of each head, times `<name>.weight` plus
    `offset` if they have a `weight`. With `mean` they are layer norms of each head, plus
    `<name>.bias` if they have a `bias`; with `each` these have weights [heads, head_dim] of each
    head, `apart` if they are tensors of their own, `<name>.<head>.weight`. With `whole`, all heads
    of a token together are one row. If `rotated`, they are normalized after the rotary embedding.
    """

    eps: float
    offset: float = 0.0
    names: tuple[str, str] = ("q_norm", "k_norm")
    weight: bool = True
    mean: bool = False
    bias: bool = False
    each: bool = False
    apart: bool = False
    whole: bool = False
    rotated: bool = False


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """What an attention has besides its shape. `qkv` names three linear layers, or one with the
    rows of q, k and v one after the other, or `by_head`: for each KV head the rows of its queries,
    its key and its value; or two, of q, and of each KV head's key and value. They have biases if
    `bias`, the `output` layer has one if `output_bias`; the weights of all are stored `transposed`
    if that is set. `sinks` names the vector of logits that join the softmax of each head, if there
    is one; `gate` the linear layer whose sigmoid, or other `gate_kind`, multiplies the result, with
    a row for each element or, if `gate_by_head`, for each head; `value_scale` multiplies values;
    `growth` scales rotated queries by their position; `slopes` are those of ALiBi, one for each
    head; q, k and v are clipped to [-limit, limit] if there is a `limit`."""

    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    by_head: bool = False
    output: str = "o_proj"
    bias: bool = False
    output_bias: bool = False
    transposed: bool = False
    qk_norm: QkNorm | None = None
    sinks: str | None = None
    gate: str | None = None
    gate_kind: ops.ActivationKind = ops.ActivationKind.SIGMOID
    gate_by_head: bool = False
    value_scale: float = 1.0
    growth: QueryGrowth | None = None
    slopes: tuple[float, ...] = ()
    limit: float = 0.0


def rotary_attention(
    weights: Weights,
    prefix: str,
    x: Tensor,
    shape: AttentionShape,
    rotary: Rotary | None,
    cache_name: str,
    parts: AttentionParts = AttentionParts(),
    *,
    width: int | None = None,
) -> Tensor:
    """x [T, H] -> [T, width], by default H, attended over a new cache; without `rotary`, keys have
    no positions.

    Weights: those of `parts` under `prefix`.
    """
    out, by = f"{prefix}.{parts.output}", parts.qk_norm
    shape = _divide(weights, shape, out, parts)
    qkv = [f"{prefix}.{name}" for name in parts.qkv]
    if parts.by_head:
        q, k, v = attention.project_by_head(weights, qkv[0], x, shape, bias=parts.bias)
    elif len(qkv) == 2:
        q, k, v = attention.project_q_and_kv(weights, qkv, x, shape, bias=parts.bias)
    else:
        whole = by is not None and by.whole
        q, k, v = attention.project_qkv(
            weights, qkv, x, shape, bias=parts.bias, whole=whole, transposed=parts.transposed
        )
    if parts.limit:
        q, k, v = (ops.activation(x, _CLIP, limit=parts.limit) for x in (q, k, v))
    v = ops.scale(v, parts.value_scale)
    if by is not None and not by.rotated:
        q, k = _normalize(weights, prefix, (q, k), shape, by)
    if rotary is not None:
        q, k = rotary(q, k)
        q = rotary.grown(q, parts.growth) if parts.growth else q
    if by is not None and by.rotated:
        q, k = _normalize(weights, prefix, (q, k), shape, by)
    heads = shape.shard.part(shape.heads)
    slopes = None
    if parts.slopes:
        slopes = weights.constant("alibi_slopes", parts.slopes[heads.begin : heads.end])
    sinks = None
    if parts.sinks:
        sinks = weights.vector(f"{prefix}.{parts.sinks}", shape.heads, part=heads)
    scales = weights.kv_scales(prefix)
    attended = attention.attend(q, k, v, shape, cache_name, scales, sinks=sinks, slopes=slopes)
    if parts.gate:
        attended = _gated(weights, f"{prefix}.{parts.gate}", x, attended, shape, parts)
    bias, transposed = parts.output_bias, parts.transposed
    width = x.width if width is None else width
    return attention.output(weights, out, attended, shape, width, bias=bias, transposed=transposed)


def _gated(
    weights: Weights,
    name: str,
    x: Tensor,
    attended: Tensor,
    shape: AttentionShape,
    parts: AttentionParts,
) -> Tensor:
    """attended [T, heads, values] times what the gate `name` makes of x."""
    heads = shape.shard.part(shape.heads)
    if parts.gate_by_head:
        gate = linear(weights, name, x, (heads.size,), rows=heads, dtype="f32")
        return ops.scale_groups(attended, ops.activation(gate, parts.gate_kind))
    rows, row_shape = shape.features(shape.heads, shape.values), (heads.size, shape.values)
    gate = linear(weights, name, x, row_shape, rows=rows)
    return ops.gated_activation(gate, attended, parts.gate_kind)


def _divide(
    weights: Weights, shape: AttentionShape, out: str, parts: AttentionParts
) -> AttentionShape:
    """`shape` with the heads divided among ranks, if what the attention has allows it."""
    ranks, by = weights.shard.ranks, parts.qk_norm
    if by is not None and by.whole and ranks > 1:
        weights.note("every rank computes all queries and keys: their norms are over all heads")
    if parts.by_head and shape.kv_heads % ranks:
        weights.note(
            f"every rank computes the whole attention: {shape.kv_heads} KV heads, whose rows lie"
            f" beside those of their queries, do not divide among {ranks} ranks"
        )
        return shape
    return attention.divide(weights, shape, out)


def _normalize(
    weights: Weights, prefix: str, qk: tuple[Tensor, Tensor], shape: AttentionShape, by: QkNorm
) -> tuple[Tensor, Tensor]:
    """q and k normalized, [T, heads, head_dim]."""

    def normalize(x: Tensor, name: str, heads: int) -> Tensor:
        name, dim = f"{prefix}.{name}", shape.head_dim
        if by.each:
            part = shape.features(heads)
            weight = _weights_of_heads(weights, name, part, dim, apart=by.apart)
            return ops.layer_norm(x, weight, norm.zeros(weights, part.size), eps=by.eps)
        if by.whole and not shape.features(heads).whole:
            y = norm.rms_norm(weights, name, x, by.eps, weight=by.weight, weight_offset=by.offset)
            return attention.own_heads(y, shape, heads)
        if by.mean:
            return norm.layer_norm(weights, name, x, by.eps, weight=by.weight, bias=by.bias)
        return norm.rms_norm(
            weights,
            name,
            x,
            by.eps,
            weight=by.weight,
            weight_offset=by.offset,
            row_shape=(x.width // dim, dim),
        )

    q, k = qk
    return normalize(q, by.names[0], shape.heads), normalize(k, by.names[1], shape.kv_heads)


def _weights_of_heads(
    weights: Weights, name: str, part: Part, head_dim: int, *, apart: bool
) -> Tensor:
    """f32 [part.size]: the weights of the heads whose features are `part`, one after the other."""
    heads = part.total // head_dim
    if not apart:
        return weights.vector(f"{name}.weight", part.total, part=part, stored=(heads, head_dim))
    names = [f"{name}.{head}.weight" for head in range(heads)]
    own = slice(part.begin // head_dim, part.end // head_dim)
    for other in names[: own.start] + names[own.stop :]:
        weights.claim(other)
    return weights.vectors(names[own], head_dim)
