"""The indexer of sparse attention (DeepSeek V3.2, section 2.1): small heads that score each cached
token for each query; the attention sees the best alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.head_growth import grow_heads
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import CHOSEN, name_in_layer
from pagemill.ops.program import GroupEntry
from pagemill.ops.trace import Tensor

_GROUP = GroupEntry("index", "mla")


@dataclass(frozen=True, slots=True)
class Indexer:
    """`heads` of `size` elements, of which the first `rope` rotate, or with `rope_last` the last;
    `choices` tokens are chosen for each query; `interleaved`: how rotary pairs lie; `norm_eps` is
    added to the variance of keys; `growth` names the module by which queries grow with the
    position, if there is one."""

    heads: int
    size: int
    rope: int
    choices: int
    interleaved: bool
    rope_last: bool = False
    norm_eps: float = 1e-6
    growth: str | None = None


def chosen_tokens(
    weights: Weights,
    prefix: str,
    x: Tensor,
    queries: Tensor,
    indexer: Indexer,
    rotary: Rotary,
    cache_name: str,
) -> Tensor:
    """x [T, H], queries [T, Q], the vector of which the attention's queries are projected -> what
    `ops.select_tokens` returns, with a new cache of index keys, which are never in fp8. Each rank
    chooses for itself.

    Weights: `<prefix>.{wq_b,wk,weights_proj}`, the layer norm `<prefix>.k_norm`, and `growth`.
    """
    rotary = replace(rotary, interleaved=indexer.interleaved)
    q = linear(weights, f"{prefix}.wq_b", queries, (indexer.heads, indexer.size))
    if indexer.growth is not None:
        q = grow_heads(weights, f"{prefix}.{indexer.growth}", q, rotary.positions)
    k = linear(weights, f"{prefix}.wk", x, (1, indexer.size))
    k = norm.layer_norm(weights, f"{prefix}.k_norm", k, indexer.norm_eps)
    if indexer.rope_last:
        at = indexer.size - indexer.rope
        (q_rest, q_rope), (k_rest, k_rope) = (ops.split(part, at) for part in (q, k))
    else:
        (q_rope, q_rest), (k_rope, k_rest) = (ops.split(part, indexer.rope) for part in (q, k))
    q_rope, k_rope = rotary(q_rope, k_rope)
    row = (indexer.size, 1, indexer.size)
    cache = x.trace.cache(cache_name, x.trace.group(_GROUP), row, layout="latent")
    ops.latent_write(k_rest, k_rope, cache)
    # Positive factors of scores, which some implementations have, would change no choice.
    shares = linear(weights, f"{prefix}.weights_proj", x, (indexer.heads,), dtype="f32")
    chosen = ops.select_tokens(q_rest, q_rope, shares, cache, choices=indexer.choices)
    return name_in_layer(chosen, CHOSEN)
