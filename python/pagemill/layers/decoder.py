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
    rotary: Rotary | None,
    cache_name: str,
    *,
    bias: bool = False,
    output_bias: bool = False,
    qk_norm_eps: float | None = None,
    norm_offset: float = 0.0,
) -> Tensor:
    """x [T, H] -> [T, H], attended over a new cache; without `rotary`, keys have no positions.

    Weights: `<prefix>.{q,k,v}_proj`, with biases if `bias`, and `<prefix>.o_proj`, with one if
    `output_bias`. With `qk_norm_eps` each head of q and k is normalized before it is rotated, times
    `<prefix>.{q,k}_norm` plus `norm_offset`.
    """
    out = f"{prefix}.o_proj"
    shape = attention.divide(weights, shape, out)
    names = (f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
    q, k, v = attention.project_qkv(weights, names, x, shape, bias=bias)
    if qk_norm_eps is not None:
        q, k = (
            norm.rms_norm(weights, f"{prefix}.{name}", y, qk_norm_eps, weight_offset=norm_offset)
            for name, y in (("q_norm", q), ("k_norm", k))
        )
    if rotary is not None:
        q, k = rotary(q, k)
    attended = attention.attend(q, k, v, shape, cache_name, weights.kv_scales(prefix))
    return attention.output(weights, out, attended, shape, x.width, bias=output_bias)
