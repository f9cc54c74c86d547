"""`gated_recurrence`: the recurrence of RecurrentGemma over each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_shapes, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep

_GATE_FACTOR = -8


def gated_recurrence(x: Tensor, gate: Tensor, rate: Tensor, state: Cache) -> Tensor:
    """x and gate [T, ...] with rows of C elements, rate f32 [C], `state` [C] -> y as x.
    `cc/ops/gated_recurrence` has the formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    op = "gated_recurrence"
    require_act(op, x=x, gate=gate)
    require_equal_shapes(op, x, gate)
    require_f32(op, rate=rate)
    require_vector(op, "rate", rate, x.width)
    if state.layout != "state" or state.dims != (x.width,):
        raise ShapeError(
            f"{op}: {state.name} holds {state.layout} {state.dims}, it must be state ({x.width},)"
        )
    return x.trace.emit(op, [x, gate, rate, state], [(x.shape, x.dtype)])[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, TorchState],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32, one token after the other."""
    import torch

    del attributes
    x, gate, rate, state = inputs
    rows = x.float().flatten(1)
    log_a = _GATE_FACTOR * gate.float().flatten(1).sigmoid() * torch.nn.functional.softplus(rate)
    decays, factors = log_a.exp(), (-torch.expm1(2 * log_a)).sqrt()
    y = torch.empty_like(rows)
    for run in step.state_runs(state.table):
        h = state.read(run.source)
        for t in range(run.begin, run.end):
            starts = run.source == 0 and t == run.begin
            h = rows[t] if starts else decays[t] * h + factors[t] * rows[t]
            y[t] = h
        state.pages[run.target] = h
    return (y.reshape(x.shape).to(x.dtype),)
