"""`adjust_logits`: biases of rows of logits, and penalties of tokens that occurred.

Device executors run it before `argmax`, so it has no tracing function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, which changes the logits."""
    import torch

    del attributes, step
    x, counts, biases, penalties, ids = inputs
    x[biases[:, 0].long(), biases[:, 1].long()] += _floats(biases[:, 2])
    rows, slots = penalties[:, :2].long().unbind(1)
    repetition, frequency, presence = _floats(penalties[:, 2:5])[..., None].unbind(1)
    logits, counted = x[rows], counts[slots]
    for row, (first, number) in enumerate(cast("list[list[int]]", penalties[:, 5:].tolist())):
        drafts = ids[first : first + number]
        drafts = drafts[(drafts >= 0) & (drafts < x.shape[1])].long()
        counted[row] += 2 * torch.bincount(drafts, minlength=x.shape[1]).to(counted.dtype)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(counted != 0, repeated, logits)
    outputs = counted // 2
    x[rows] = torch.where(outputs > 0, logits - (frequency * outputs + presence), logits)
    return ()


def _floats(words: torch.Tensor) -> torch.Tensor:
    """The words as the floats that they hold."""
    import torch

    return words.contiguous().view(torch.float32)
