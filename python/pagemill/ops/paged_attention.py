"""`paged_attention`: attention of the step's queries over the cached context of their requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pagemill.ops.checks import require_act, require_f32, require_rank, require_vector
from pagemill.ops.kv_write import scale_attributes
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchCache, TorchStep


def paged_attention(
    q: Tensor,
    cache: Cache,
    *,
    scale: float,
    chunked: bool = False,
    causal: bool = True,
    keys_from: int = 0,
    keys_until: int = 0,
    item_ends: bool = False,
    soft_cap: float = 0.0,
    grows_from: int = 0,
    sinks: Tensor | None = None,
    slopes: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Tensor:
    """q [T, Hq, D] -> softmax(q k^T scale) v, [T, Hq, D].

    A query at position p attends to keys in (p - window, p] of its request, with the cache's
    `window` (0 = all); if `chunked`, the window begins anew at each multiple of it; with `causal`
    false, to all of them. `keys_until`: only keys before this position. `keys_from`: queries at or
    after this position see no keys before it. With `item_ends`, queries of a media item also attend
    to the keys of the item behind them, by the step array of this name. If soft_cap > 0, scores
    become soft_cap * tanh(score / soft_cap). If grows_from > 0, those of a query at a later
    position are then multiplied by ln(position) / ln(grows_from). Then slopes [Hq], if given, adds
    slope * (position of the key - position of the query) to a head's scores (ALiBi); sinks [Hq] are
    logits added to the softmax's denominator (attention sinks). Heads are grouped: Hq is a multiple
    of the cache's heads. k_scale and v_scale are those of `kv_write`. The step's own keys and
    values must have been written before.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("paged_attention", q=q)
    require_f32("paged_attention", sinks=sinks, slopes=slopes)
    require_rank("paged_attention", "q", q, 3)
    heads = int(q.shape[1])
    if cache.layout != "kv" or q.shape[2] != cache.dims[1] or heads % cache.dims[0]:
        raise ShapeError(
            f"paged_attention: q is {format_shape(q.shape)}, {cache.name} holds {cache.layout} "
            f"{cache.dims}"
        )
    if chunked and not (cache.window and causal):
        raise ShapeError("paged_attention: chunks need a cache with a window, and causal attention")
    if (keys_from or keys_until) and (cache.window or not causal or (keys_from and keys_until)):
        raise ShapeError(
            "paged_attention: either keys_from or keys_until may be set, for a cache without a"
            " window and causal attention"
        )
    if item_ends and (chunked or not causal or keys_from or keys_until):
        raise ShapeError(
            "paged_attention: item_ends needs causal attention without chunks, keys_from and"
            " keys_until"
        )
    require_vector("paged_attention", "sinks", sinks, heads)
    require_vector("paged_attention", "slopes", slopes, heads)
    attributes = [("scale", scale), ("window", cache.window), ("causal", int(causal))]
    if chunked:
        attributes.append(("chunked", 1))
    parts = [("keys_from", keys_from), ("keys_until", keys_until), ("item_ends", int(item_ends))]
    attributes += [(name, value) for name, value in parts if value]
    if soft_cap:
        attributes.append(("soft_cap", soft_cap))
    if grows_from:
        attributes.append(("grows_from", grows_from))
    attributes += scale_attributes(k_scale, v_scale)
    operands = [q, cache, sinks, slopes]
    while operands[-1] is None:
        operands.pop()
    return q.trace.emit("paged_attention", operands, [(q.shape, q.dtype)], attributes)[0]


@dataclass(frozen=True, slots=True)
class _Softmax:
    """Parameters of the softmax. `sinks` and `slopes` are [Hq], in f32."""

    scale: float
    soft_cap: float
    grows_from: int
    sinks: torch.Tensor | None
    slopes: torch.Tensor | None

    @property
    def plain(self) -> bool:
        return not (self.soft_cap or self.grows_from) and self.sinks is None and self.slopes is None


def reference(
    inputs: Sequence[Any],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> tuple[torch.Tensor, ...]:
    """The op in torch: requests with one token together, each longer one by itself."""
    import torch

    q, cache = cast("tuple[torch.Tensor, TorchCache]", tuple(inputs[:2]))
    sinks, slopes = (*inputs[2:], None, None)[:2]
    softmax = _Softmax(
        attributes["scale"],
        attributes.get("soft_cap", 0.0),
        int(attributes.get("grows_from", 0)),
        sinks,
        slopes,
    )
    output = torch.empty_like(q)
    table = step.tables[cache.table]
    if step.decode is not None and table.decode_slots is not None:
        group, slots = step.decode, table.decode_slots
        key_positions = torch.arange(slots.shape[1], device=q.device)
        # With one token, a request sees all that it has: padding is masked in either mode.
        ends = _item_ends(step, attributes, group.rows)
        visible = _visible(group.positions, key_positions, attributes, ends).unsqueeze(1)
        distances = (key_positions - group.positions).unsqueeze(1)
        queries = q[group.rows].unsqueeze(1)
        keys, values = cache.key[slots], cache.value[slots]
        attended = _attend(queries, keys, values, visible, distances, softmax)
        output[group.rows] = attended.squeeze(1)
    for span, slots in zip(step.prefills, table.prefill_slots, strict=True):
        key_positions = torch.arange(span.context, device=q.device)
        first = span.context - (span.end - span.begin)
        positions = key_positions[first:].unsqueeze(1)
        if attributes.get("causal", 1.0) == 0.0:
            visible = key_positions >= positions * 0
        else:
            ends = _item_ends(step, attributes, slice(span.begin, span.end))
            visible = _visible(positions, key_positions, attributes, ends)
        visible = visible.unsqueeze(0)
        distances = (key_positions - positions).unsqueeze(0)
        keys, values = cache.key[slots], cache.value[slots]
        queries = q[span.begin : span.end]
        attended = _attend(queries[None], keys[None], values[None], visible, distances, softmax)
        output[span.begin : span.end] = attended[0]
    return (output,)


def _item_ends(
    step: TorchStep, attributes: Mapping[str, float], rows: torch.Tensor | slice
) -> torch.Tensor | None:
    """The step's `item_ends` of some tokens, [N, 1]; None if the op does not read them."""
    if not attributes.get("item_ends"):
        return None
    return step.inputs["item_ends"][rows].unsqueeze(1)


def _visible(
    positions: torch.Tensor,
    key_positions: torch.Tensor,
    attributes: Mapping[str, float],
    item_ends: torch.Tensor | None,
) -> torch.Tensor:
    """True for keys that a query of causal attention attends to. positions and item_ends [..., 1],
    key_positions [C] -> bool [..., C]."""
    visible = key_positions <= positions
    if item_ends is not None:
        visible = visible | (key_positions < item_ends)
    if keys_from := attributes.get("keys_from"):
        visible = visible & ((key_positions >= keys_from) | (positions < keys_from))
    if keys_until := attributes.get("keys_until"):
        visible = visible & (key_positions < keys_until)
    window = int(attributes.get("window", 0.0))
    if not window:
        return visible
    if attributes.get("chunked"):
        return visible & (key_positions >= positions - positions % window)
    return visible & (key_positions > positions - window)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    distances: torch.Tensor,
    softmax: _Softmax,
) -> torch.Tensor:
    """q [B, Q, Hq, D], k, v [B, C, Hk, D], visible, distances [B, Q, C] -> [B, Q, Hq, D].

    The queries of heads that share keys become rows of one product, so keys are not repeated.
    """
    from torch.nn.functional import scaled_dot_product_attention

    batch, length, heads, head_dim = q.shape
    groups = heads // k.shape[2]
    queries = q.view(batch, length, -1, groups, head_dim).transpose(1, 2).flatten(2, 3)
    keys, values = k.to(q.dtype).transpose(1, 2), v.to(q.dtype).transpose(1, 2)
    mask = visible.repeat_interleave(groups, 1).unsqueeze(1)
    if softmax.plain:
        attended = scaled_dot_product_attention(queries, keys, values, mask, scale=softmax.scale)
    else:
        far = distances.repeat_interleave(groups, 1).unsqueeze(1)
        weights = _weights(queries.float() @ keys.float().mT, mask, far, softmax, groups)
        attended = (weights @ values.float()).to(q.dtype)
    by_group = attended.reshape(batch, -1, length, groups, head_dim).transpose(1, 2)
    return by_group.reshape(batch, length, heads, head_dim)


def _weights(
    products: torch.Tensor,
    mask: torch.Tensor,
    distances: torch.Tensor,
    softmax: _Softmax,
    groups: int,
) -> torch.Tensor:
    """q k^T [B, Hk, Q groups, C] -> weights of the same shape.

    Row r of KV head h is query head h groups + r % groups.
    """
    import torch

    def per_row(of_heads: torch.Tensor) -> torch.Tensor:
        """[Hq] -> [Hk, Q groups, 1]."""
        rows = of_heads.float().view(-1, 1, groups)
        return rows.expand(-1, products.shape[2] // groups, -1).flatten(1).unsqueeze(-1)

    scores = products * softmax.scale
    if softmax.soft_cap:
        scores = softmax.soft_cap * torch.tanh(scores / softmax.soft_cap)
    if softmax.grows_from:
        positions = -distances[..., :1]  # that of the first key is 0
        logarithms = positions.clamp(min=softmax.grows_from).log()
        scores = scores * (logarithms / math.log(softmax.grows_from))
    if softmax.slopes is not None:
        scores = scores + per_row(softmax.slopes) * distances
    scores = scores.masked_fill(~mask, -torch.inf)
    if softmax.sinks is None:
        return scores.softmax(-1)
    sinks = per_row(softmax.sinks).expand(scores.shape[0], -1, -1, -1)
    return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
