"""`take_tokens`: the tokens of a step, some of which the previous step sampled.

Device executors run it before a program, so it has no tracing function.
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
    ids, sampled = inputs
    rows = (-1 - ids).clamp(min=0)
    return (torch.where(ids >= 0, ids, sampled[rows]).clamp(min=0),)
