"""`wkv`: the recurrence of RWKV-4 over each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_shapes, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep

STATE_ROWS = 3
"""Numerator, denominator and exponent of both."""


def wkv(key: Tensor, value: Tensor, decay: Tensor, first: Tensor, state: Cache) -> Tensor:
    """key and value [T, ...] with rows of C elements, decay and first f32 [C], `state` [3, C] -> y
    as value. `cc/ops/wkv` has the formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("wkv", key=key, value=value)
    require_equal_shapes("wkv", key, value)
    require_f32("wkv", decay=decay, first=first)
    require_vector("wkv", "decay", decay, key.width)
    require_vector("wkv", "first", first, key.width)
    dims = (STATE_ROWS, key.width)
    if state.layout != "state" or state.dims != dims:
        raise ShapeError(
            f"wkv: {state.name} holds {state.layout} {state.dims}, it must be state {dims}"
        )
    operands = [key, value, decay, first, state]
    return key.trace.emit("wkv", operands, [(value.shape, value.dtype)])[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, TorchState],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32, one token after the other."""
    import torch

    del attributes
    keys, values = (x.float().flatten(1) for x in inputs[:2])
    rate, first, state = inputs[2].exp(), inputs[3], inputs[4]

    def add(sums: torch.Tensor, value: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
        """`sums` [3, C] with `value`, whose weight is e^exponent."""
        largest = torch.maximum(sums[2], exponent)
        before, now = (sums[2] - largest).exp(), (exponent - largest).exp()
        return torch.stack([before * sums[0] + now * value, before * sums[1] + now, largest])

    y = torch.empty_like(values)
    for run in step.state_runs(state.table):
        sums = state.read(run.source)
        for t in range(run.begin, run.end):
            if run.source == 0 and t == run.begin:
                y[t] = values[t]
                sums = torch.stack([values[t], torch.ones_like(rate), keys[t]])
                continue
            total = add(sums, values[t], first + keys[t])
            y[t] = total[0] / total[1]
            decayed = torch.stack([sums[0], sums[1], sums[2] - rate])
            sums = add(decayed, values[t], keys[t])
        state.pages[run.target] = sums
    return (y.reshape(inputs[1].shape).to(inputs[1].dtype),)
