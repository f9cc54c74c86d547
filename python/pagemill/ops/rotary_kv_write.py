"""`rotary_kv_write`: rotary position embedding, and storing keys and values, in one pass.

A rewrite of the traced program creates it, so it has a reference but no tracing function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagemill.ops.kv_write import reference as kv_write_reference
from pagemill.ops.rotary import reference as rotary_reference

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def reference(
    inputs: Sequence[Any], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """q, k, positions, inv_freq, v, cache -> rotated q and k; k and v are stored."""
    *rotary_inputs, v, cache = inputs
    q, k = rotary_reference(rotary_inputs, attributes, step)
    kv_write_reference((k, v, cache), attributes, step)
    return q, k
