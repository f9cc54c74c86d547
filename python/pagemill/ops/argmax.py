"""`argmax`: the largest element of each row and its column.

Device executors run it after a program, so it has no tracing function.
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
    (x,) = inputs
    values = x.amax(-1)
    # The lowest column with the maximum.
    columns = (x == values[:, None]).to(torch.int32).argmax(-1).to(torch.int32)
    values = torch.where(values.isnan(), torch.inf, values)
    return torch.where(values.isfinite(), columns, -1), values
