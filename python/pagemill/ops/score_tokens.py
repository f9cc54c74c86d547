"""`score_tokens`: log probabilities and ranks of tokens, and the most likely tokens, of rows.

Device executors run it after `draw_tokens`, so it has no tracing function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep

_MOST = 20  # tokens of a row


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    import torch

    del attributes, step
    x, copies, columns, scored = inputs
    y = torch.zeros(len(scored), 2 + 2 * _MOST, dtype=torch.int32)
    for n, (row, given, num_top, copy) in enumerate(cast("list[list[int]]", scored.tolist())):
        logits = x[row] if copy < 0 else copies[copy]
        token = int(columns[row]) if given < 0 else given
        logprobs = logits.double().log_softmax(0).float()
        if token >= 0:
            y[n, 0] = logprobs[token].view(torch.int32)
            y[n, 1] = 1 + (logits > logits[token]).sum()
        top = torch.sort(logits, descending=True, stable=True).indices[:num_top]
        y[n, 2 : 2 + len(top)] = top
        y[n, 2 + _MOST : 2 + _MOST + len(top)] = logprobs[top].view(torch.int32)
    return (y,)
