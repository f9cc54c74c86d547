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


# Values of the attribute encoder_ends.
_ENCODER_KEYS, _DECODER_KEYS = 1, 2


def paged_attention(
    q: Tensor,
    cache: Cache,
    *,
    scale: float,
    chunked: bool = False,
    causal: bool = True,
    encoder_keys: bool = False,
    decoder_keys: bool = False,
    item_ends: bool = False,
    soft_cap: float = 0.0,
    grows_from: int = 0,
    sinks: Tensor | None = None,
    slopes: Tensor | None = None,
    biases: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Tensor:
    """q [T, Hq, D] -> softmax(q k^T scale) v, [T, Hq, D].

    A query at position p attends to keys in (p - window, p] of its request, with the cache's
    `window` (0 = all); if `chunked`, the window begins anew at each multiple of it; with `causal`
    false, to all of them. With `encoder_keys` it attends only to the tokens that a request begins
    with for the rows of an encoder, which the step array `encoder_ends` counts, and with
    `decoder_keys`, if it is behind these tokens, only to those behind them. With `item_ends`,
    queries of a media item also attend to the keys of the item behind them, by the step array of
    this name. Biases [Hq, 2 * reach + 1], if given, add to scores what they have for the distance
    (position of the key - position of the query), from -reach to reach, which farther keys share.
    If soft_cap > 0 (1e-5 to 1e5), scores then become soft_cap * tanh(score / soft_cap). If
    grows_from > 0, those of a query at a later position are then multiplied by ln(position) /
    ln(grows_from). Then slopes [Hq], if given, adds slope * distance to a head's scores (ALiBi);
    sinks [Hq] are logits added to the softmax's denominator (attention sinks). Heads are grouped:
    Hq is a multiple of the cache's heads. k_scale and v_scale are those of `kv_write`. The step's
    own keys and values must have been written before.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("paged_attention", q=q)
    require_f32("paged_attention", sinks=sinks, slopes=slopes, biases=biases)
    require_rank("paged_attention", "q", q, 3)
    heads = int(q.shape[1])
    if cache.layout != "kv" or q.shape[2] != cache.dims[1] or heads % cache.dims[0]:
        raise ShapeError(
            f"paged_attention: q is {format_shape(q.shape)}, {cache.name} holds {cache.layout} "
            f"{cache.dims}"
        )
    _check_seen(cache, chunked, causal, item_ends, (encoder_keys, decoder_keys))
    _check_biases(biases, heads)
    require_vector("paged_attention", "sinks", sinks, heads)
    require_vector("paged_attention", "slopes", slopes, heads)
    attributes = [("scale", scale), ("window", cache.window), ("causal", int(causal))]
    parts = {
        "chunked": int(chunked),
        "encoder_ends": _ENCODER_KEYS if encoder_keys else _DECODER_KEYS if decoder_keys else 0,
        "item_ends": int(item_ends),
    }
    attributes += [(name, part) for name, part in parts.items() if part]
    if soft_cap:
        attributes.append(("soft_cap", soft_cap))
    if grows_from:
        attributes.append(("grows_from", grows_from))
    attributes += scale_attributes(k_scale, v_scale)
    operands = [q, cache, sinks, slopes, biases]
    while operands[-1] is None:
        operands.pop()
    return q.trace.emit("paged_attention", operands, [(q.shape, q.dtype)], attributes)[0]


def _check_seen(
    cache: Cache, chunked: bool, causal: bool, item_ends: bool, parts: tuple[bool, bool]
) -> None:
    """Compares what says which keys a query sees."""
    if chunked and not (cache.window and causal):
        raise ShapeError("paged_attention: chunks need a cache with a window, and causal attention")
    if any(parts) and (cache.window or not causal or all(parts)):
        raise ShapeError(
            "paged_attention: either encoder_keys or decoder_keys may be set, for a cache without a"
            " window and causal attention"
        )
    if item_ends and (chunked or not causal or any(parts)):
        raise ShapeError(
            "paged_attention: item_ends needs causal attention without chunks, encoder_keys and"
            " decoder_keys"
        )


def _check_biases(biases: Tensor | None, heads: int) -> None:
    if biases is None or (
        len(biases.shape) == 2 and biases.rows == heads and int(biases.shape[1]) % 2
    ):
        return
    raise ShapeError(
        f"paged_attention: biases are {format_shape(biases.shape)}, they must be {heads} rows of an"
        " odd number of distances"
    )


@dataclass(frozen=True, slots=True)
class _Softmax:
    """Parameters of the softmax. `sinks` and `slopes` are [Hq], and `biases` [Hq, distances], in
    f32."""

    scale: float
    soft_cap: float
    grows_from: int
    sinks: torch.Tensor | None
    slopes: torch.Tensor | None
    biases: torch.Tensor | None

    @property
    def plain(self) -> bool:
        tables = (self.sinks, self.slopes, self.biases)
        return not (self.soft_cap or self.grows_from) and all(each is None for each in tables)


def reference(
    inputs: Sequence[Any],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> tuple[torch.Tensor, ...]:
    """The op in torch: requests with one token together, each longer one by itself."""
    import torch

    q, cache = cast("tuple[torch.Tensor, TorchCache]", tuple(inputs[:2]))
    sinks, slopes, biases = (*inputs[2:], None, None, None)[:3]
    softmax = _Softmax(
        attributes["scale"],
        attributes.get("soft_cap", 0.0),
        int(attributes.get("grows_from", 0)),
        sinks,
        slopes,
        biases,
    )
    output = torch.empty_like(q)
    table = step.tables[cache.table]
    if step.decode is not None and table.decode_slots is not None:
        group, slots = step.decode, table.decode_slots
        key_positions = torch.arange(slots.shape[1], device=q.device)
        # With one token, a request sees all that it has: padding is masked in either mode.
        visible = _visible(step, group.rows, group.positions, key_positions, attributes)
        visible = visible.unsqueeze(1)
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
            rows = slice(span.begin, span.end)
            visible = _visible(step, rows, positions, key_positions, attributes)
        visible = visible.unsqueeze(0)
        distances = (key_positions - positions).unsqueeze(0)
        keys, values = cache.key[slots], cache.value[slots]
        queries = q[span.begin : span.end]
        attended = _attend(queries[None], keys[None], values[None], visible, distances, softmax)
        output[span.begin : span.end] = attended[0]
    return (output,)


def _visible(
    step: TorchStep,
    rows: torch.Tensor | slice,
    positions: torch.Tensor,
    key_positions: torch.Tensor,
    attributes: Mapping[str, float],
) -> torch.Tensor:
    """True for keys that queries of causal attention attend to: those of the step's tokens `rows`,
    at positions [N, 1]. key_positions [C] -> bool [N, C]."""
    visible = key_positions <= positions
    if attributes.get("item_ends"):
        visible = visible | (key_positions < step.inputs["item_ends"][rows].unsqueeze(1))
    if part := attributes.get("encoder_ends"):
        end = step.inputs["encoder_ends"][rows].unsqueeze(1)
        if part == _ENCODER_KEYS:
            visible = visible & (key_positions < end)
        else:
            visible = visible & ((key_positions >= end) | (positions < end))
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
    if softmax.biases is not None:
        scores = scores + _biases(softmax.biases, distances, products.shape, groups)
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


def _biases(
    table: torch.Tensor, distances: torch.Tensor, shape: torch.Size, groups: int
) -> torch.Tensor:
    """table [Hq, 2 * reach + 1] and distances [B, 1, Q groups, C] -> `shape`, [B, Hk, Q groups,
    C]."""
    reach = table.shape[1] // 2
    by_row = table.view(-1, 1, groups, table.shape[1])
    by_row = by_row.expand(-1, shape[2] // groups, -1, -1).flatten(1, 2)
    index = distances.clamp(-reach, reach) + reach
    return by_row.expand(shape[0], -1, -1, -1).gather(-1, index.expand(shape))
