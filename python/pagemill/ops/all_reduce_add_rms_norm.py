"""`all_reduce_add_rms_norm`: the sum over the ranks, residual add and normalization in one pass.

A rewrite of the traced program creates it, so it has a reference but no tracing function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.add_rms_norm import reference as add_rms_norm_reference
from pagemill.ops.all_reduce import reference as all_reduce_reference

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """x, residual [N, H], weight [H] -> rms_norm(x + residual), x + residual and x, in a group of
    one.

    Raises:
        ValueError: the program is for a larger group.
    """
    x, residual, weight = inputs
    (reduced,) = all_reduce_reference([x], attributes, step)
    return (*add_rms_norm_reference([reduced, residual, weight], attributes, step), reduced)
