"""`count_tokens`: keeps count of the tokens of requests with penalties.

Device executors run it before tokens are drawn, so it has no tracing function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, which changes the counts."""
    import torch

    del attributes, step
    counts, cleared, changes, ids = inputs
    counts[cleared.long()] = 0
    slots, tokens, amounts = changes.long().unbind(1)
    found = torch.where(tokens >= 0, tokens, ids[(-1 - tokens).clamp(min=0)])
    known = (found >= 0) & (found < counts.shape[1])
    counts[slots[known], found[known]] += amounts[known].to(counts.dtype)
    return ()
