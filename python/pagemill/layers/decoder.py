"""Blocks of decoders with rotary positions."""

from __future__ import annotations

from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.ops.trace import Tensor


def rotary_attention(
    weights: Weights,
    prefix: str,
    x: Tensor,
    shape: AttentionShape,
    rotary: Rotary,
    cache_name: str,
    *,
    bias: bool = False,
    qk_norm_eps: float | None = None,
) -> Tensor:
    """x [T, H] -> [T, H], attended over a new cache.

    Weights: `<prefix>.{q,k,v,o}_proj`, with biases if `bias`; with `qk_norm_eps` each head of q and
    k is normalized before it is rotated, times `<prefix>.{q,k}_norm`.
    """
    out = f"{prefix}.o_proj"
    shape = attention.divide(weights, shape, out)
    names = (f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
    q, k, v = attention.project_qkv(weights, names, x, shape, bias=bias)
    if qk_norm_eps is not None:
        q = norm.rms_norm(weights, f"{prefix}.q_norm", q, qk_norm_eps)
        k = norm.rms_norm(weights, f"{prefix}.k_norm", k, qk_norm_eps)
    q, k = rotary(q, k)
    attended = attention.attend(q, k, v, shape, cache_name)
    return attention.output(weights, out, attended, shape, x.width, bias=bias)
