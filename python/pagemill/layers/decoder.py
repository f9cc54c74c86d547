"""The attention of decoders."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class QkNorm:
    """Norms of queries and keys by the root mean square of each head, times `<name>.weight` plus
    `offset` if they have a `weight`. With `whole`, all heads of a token together are one row. If
    `rotated`, they are normalized after the rotary embedding."""

    eps: float
    offset: float = 0.0
    names: tuple[str, str] = ("q_norm", "k_norm")
    weight: bool = True
    whole: bool = False
    rotated: bool = False


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """What an attention has besides its shape. `qkv` names three linear layers, or one with the
    rows of q, k and v one after the other; they have biases if `bias`, the `output` layer has one
    if `output_bias`."""

    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    output: str = "o_proj"
    bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm | None = None


def rotary_attention(
    weights: Weights,
    prefix: str,
    x: Tensor,
    shape: AttentionShape,
    rotary: Rotary | None,
    cache_name: str,
    parts: AttentionParts = AttentionParts(),
) -> Tensor:
    """x [T, H] -> [T, H], attended over a new cache; without `rotary`, keys have no positions.

    Weights: those of `parts` under `prefix`.
    """
    out, by = f"{prefix}.{parts.output}", parts.qk_norm
    whole = by is not None and by.whole
    if not whole:
        shape = attention.divide(weights, shape, out)
    elif weights.shard.ranks > 1:
        weights.note("every rank computes the whole attention: its norms are over all heads")
    qkv = [f"{prefix}.{name}" for name in parts.qkv]
    q, k, v = attention.project_qkv(weights, qkv, x, shape, bias=parts.bias, flat=whole)
    if by is not None and not by.rotated:
        q, k = _normalize(weights, prefix, (q, k), shape, by)
    if rotary is not None:
        q, k = rotary(q, k)
    if by is not None and by.rotated:
        q, k = _normalize(weights, prefix, (q, k), shape, by)
    attended = attention.attend(q, k, v, shape, cache_name, weights.kv_scales(prefix))
    return attention.output(weights, out, attended, shape, x.width, bias=parts.output_bias)


def _normalize(
    weights: Weights, prefix: str, qk: tuple[Tensor, Tensor], shape: AttentionShape, by: QkNorm
) -> tuple[Tensor, Tensor]:
    """q and k normalized, [T, heads, head_dim]."""

    def normalize(x: Tensor, name: str) -> Tensor:
        return norm.rms_norm(
            weights,
            f"{prefix}.{name}",
            x,
            by.eps,
            weight=by.weight,
            weight_offset=by.offset,
            row_shape=(x.width // shape.head_dim, shape.head_dim),
        )

    return normalize(qk[0], by.names[0]), normalize(qk[1], by.names[1])
