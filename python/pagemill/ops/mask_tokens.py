"""`mask_tokens`: rows of logits without the tokens that masks exclude.

Device executors run it before `argmax`, so it has no tracing function.
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
    """The op in torch."""
    import torch

    del attributes, step
    x, draws, masks = inputs
    bits = (masks[..., None] >> torch.arange(32, device=x.device)) & 1
    allowed = bits.bool().reshape(len(masks), -1)[:, : x.shape[1]]
    mask = draws[:, 7]
    stays = (mask < 0)[:, None] | allowed[mask.clamp(min=0)] | ~(x < torch.inf)
    return (torch.where(stays, x, -torch.inf),)
