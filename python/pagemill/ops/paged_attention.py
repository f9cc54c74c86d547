"""`paged_attention`: attention of the step's queries over the cached context of their requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_f32, require_rank
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchCache, TorchStep


def paged_attention(
    q: Tensor, cache: Cache, *, scale: float, causal: bool = True, soft_cap: float = 0.0
) -> Tensor:
    """q [T, Hq, D] -> softmax(q k^T scale) v, [T, Hq, D].

    A query at position p sees the keys in (p - window, p] of its request, `window` being the
    cache's (0 = all); with `causal` false it sees all of them. Scores are capped to
    soft_cap * tanh(score / soft_cap) where soft_cap > 0. Heads are grouped: Hq is a multiple of the
    cache's heads. The step's own keys and values must have been written before.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_f32("paged_attention", q=q)
    require_rank("paged_attention", "q", q, 3)
    heads = int(q.shape[1])
    if q.shape[2] != cache.head_dim or heads % cache.kv_heads:
        raise ShapeError(
            f"paged_attention: q is {format_shape(q.shape)}, {cache.name} holds "
            f"{cache.kv_heads} heads of {cache.head_dim}"
        )
    attributes = [("scale", scale), ("window", cache.window), ("causal", int(causal))]
    if soft_cap:
        attributes.append(("soft_cap", soft_cap))
    return q.trace.emit("paged_attention", [q, cache], [q.shape], attributes)[0]


def reference(
    inputs: tuple[torch.Tensor, TorchCache], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch: requests with one token together, each longer one by itself."""
    import torch

    q, cache = inputs
    output = torch.empty_like(q)
    if step.decode is not None:
        group = step.decode
        key_positions = torch.arange(group.slots.shape[1], device=q.device)
        # With one token, what the request has is what it sees: padding is masked in either mode.
        visible = _visible(group.positions, key_positions, attributes, causal=True).unsqueeze(1)
        queries = q[group.rows].unsqueeze(1)
        keys, values = cache.key[group.slots], cache.value[group.slots]
        output[group.rows] = _attend(queries, keys, values, visible, attributes).squeeze(1)
    for prefill in step.prefills:
        span = prefill.span
        key_positions = torch.arange(span.context, device=q.device)
        first = span.context - (span.end - span.begin)
        positions = key_positions[first:].unsqueeze(1)
        causal = attributes.get("causal", 1.0) != 0.0
        visible = _visible(positions, key_positions, attributes, causal=causal)
        keys, values = cache.key[prefill.slots], cache.value[prefill.slots]
        queries = q[span.begin : span.end]
        attended = _attend(
            queries[None], keys[None], values[None], visible.unsqueeze(0), attributes
        )
        output[span.begin : span.end] = attended[0]
    return (output,)


def _visible(
    positions: torch.Tensor,
    key_positions: torch.Tensor,
    attributes: Mapping[str, float],
    *,
    causal: bool,
) -> torch.Tensor:
    """Which key does a query see? positions [..., 1], key_positions [C] -> bool [..., C]."""
    if not causal:
        return key_positions >= positions * 0
    visible = key_positions <= positions
    window = int(attributes.get("window", 0.0))
    return visible & (key_positions > positions - window) if window else visible


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    attributes: Mapping[str, float],
) -> torch.Tensor:
    """q [B, Q, Hq, D], k, v [B, C, Hk, D], visible [B, Q, C] -> [B, Q, Hq, D].

    The queries of the heads that share keys become rows of one product, so that keys are not
    repeated.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    batch, length, heads, head_dim = q.shape
    groups = heads // k.shape[2]
    queries = q.view(batch, length, -1, groups, head_dim).transpose(1, 2).flatten(2, 3)
    keys, values = k.to(q.dtype).transpose(1, 2), v.to(q.dtype).transpose(1, 2)
    mask = visible.repeat_interleave(groups, 1).unsqueeze(1)
    scale, soft_cap = attributes["scale"], attributes.get("soft_cap", 0.0)
    if soft_cap:
        scores = soft_cap * torch.tanh((queries.float() @ keys.float().mT) * scale / soft_cap)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        attended = (weights @ values.float()).to(q.dtype)
    else:
        attended = scaled_dot_product_attention(queries, keys, values, mask, scale=scale)
    by_group = attended.reshape(batch, -1, length, groups, head_dim).transpose(1, 2)
    return by_group.reshape(batch, length, heads, head_dim)
