"""`draw_tokens`: tokens drawn from rows of logits.

Device executors run it after `argmax`, so it has no tracing function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep

_WORD = 0xFFFFFFFF


def _uniform(seed: int, counter: int) -> float:
    """A number in [0, 1) with 53 bits: Philox4x32-10.

    Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    c = [counter & _WORD, counter >> 32 & _WORD, 0, 0]
    k = [seed & _WORD, seed >> 32]
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [high >> 32 ^ c[1] ^ k[0], high & _WORD, low >> 32 ^ c[3] ^ k[1], low & _WORD]
        k = [(k[0] + 0x9E3779B9) & _WORD, (k[1] + 0xBB67AE85) & _WORD]
    return math.ldexp((c[0] << 32 | c[1]) >> 11, -53)


def _draw(x: torch.Tensor, limits: Sequence[float], top_k: int, uniform: float) -> int:
    """A column of `x` [vocab], by `limits`: temperature, min_p, top_p."""
    import torch

    temperature, min_p, top_p = limits
    order = torch.sort(x, descending=True, stable=True)  # equal logits by lower column
    weights = ((order.values.double() - order.values[0].double()) / temperature).exp()
    keep = (weights > 0) & (weights >= min_p)
    if 0 < top_k < len(x):
        keep &= order.values >= order.values[: int(keep.sum())][:top_k][-1]
    weights, columns = weights[keep], order.indices[keep]
    if top_p < 1:
        before = weights.cumsum(0) - weights
        inside = before < top_p * weights.sum()
        weights, columns = weights[inside], columns[inside]
    columns, by_column = columns.sort()
    sums = weights[by_column].cumsum(0)
    at = int(torch.searchsorted(sums, uniform * sums[-1], right=True))
    return int(columns[min(at, len(columns) - 1)])


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    import torch

    del attributes, step
    x, columns, _, draws = inputs
    limits = cast("list[list[float]]", draws[:, :3].contiguous().view(torch.float32).tolist())
    integers = cast("list[list[int]]", draws[:, 3:7].tolist())
    y = columns.clone()
    for row, (top_k, seed_low, seed_high, position) in enumerate(integers):
        if y[row] < 0 or limits[row][0] <= 0:
            continue
        seed = (seed_high & _WORD) << 32 | (seed_low & _WORD)
        y[row] = _draw(x[row], limits[row], top_k, _uniform(seed, position))
    return (y,)
