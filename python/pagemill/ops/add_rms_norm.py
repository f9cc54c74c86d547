"""`add_rms_norm`: residual add and normalization in one pass.

A rewrite of the traced program creates it, so it has a reference but no tracing function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.rms_norm import reference as rms_norm_reference

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """x [N, H], residual with rows of H elements, weight [H] -> rms_norm(x + residual) and x +
    residual, as x."""
    x, residual, weight = inputs
    total = x + residual.reshape(x.shape)
    return (*rms_norm_reference([total, weight], attributes, step), total)
