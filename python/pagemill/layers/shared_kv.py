"""Attention of which the last layers attend to what an earlier one has stored (Gemma 3n and 4)."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.ops.trace import Tensor


def kv_sources(types: Sequence[str], shared: int) -> list[int]:
    """The layer whose keys and values each layer attends to: its own, or, of the last `shared`
    layers, those of the last one before them that is of the same kind.

    Raises:
        ValueError: there is no such layer.
    """
    first = len(types) - shared
    if first < 1 or not set(types[first:]) <= set(types[:first]):
        raise ValueError(f"num_kv_shared_layers={shared} leaves no layer of a kind to share")
    last = {kind: layer for layer, kind in enumerate(types[:first])}
    return [layer if layer < first else last[kind] for layer, kind in enumerate(types)]


def shared_kv_attention(
    weights: Weights,
    prefixes: tuple[str, str],
    x: Tensor,
    shape: AttentionShape,
    rotary: Rotary,
    caches: tuple[str, str],
    *,
    eps: float,
    bias: bool = False,
    values: bool = True,
) -> Tensor:
    """x [T, H] -> [T, H]. `prefixes` and `caches` are those of the layer, and of the one whose keys
    and values it attends to: its own, or an earlier one of the same shape. Without `values`, keys
    are values, too, before their norm.

    Weights: `<prefix>.{q_proj,o_proj,q_norm}`, and, if it stores its own, `<prefix>.{k_proj,v_proj,
    k_norm}`; the norm of values has none.
    """
    (prefix, source), (cache, source_cache) = prefixes, caches
    out = f"{prefix}.o_proj"
    shape = attention.divide(weights, shape, out)

    def project(which: str, heads: int) -> Tensor:
        rows, dim = shape.features(heads), shape.head_dim
        row_shape = (rows.size // dim, dim)
        return linear(weights, f"{prefix}.{which}_proj", x, row_shape, bias=bias, rows=rows)

    q = norm.rms_norm(weights, f"{prefix}.q_norm", project("q", shape.heads), eps)
    scales = weights.kv_scales(source)
    if cache == source_cache:
        k = project("k", shape.kv_heads)
        v = project("v", shape.kv_heads) if values else k
        q, k = rotary(q, norm.rms_norm(weights, f"{prefix}.k_norm", k, eps))
        v = norm.rms_norm(weights, "", v, eps, weight=False)
        attended = attention.attend(q, k, v, shape, cache, scales)
    else:
        attended = attention.attend_again(rotary.queries(q), shape, source_cache, scales)
    return attention.output(weights, out, attended, shape, x.width, bias=bias)
