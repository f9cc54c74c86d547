"""`selective_scan`: the recurrence of Mamba layers over each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep

_MAX_STATES = 64


def selective_scan(
    x: Tensor,
    dt: Tensor,
    b: Tensor,
    c: Tensor,
    a_log: Tensor,
    d: Tensor,
    dt_bias: Tensor,
    state: Cache,
) -> Tensor:
    """x and dt [T, channels]; b and c [T, states]; a_log f32 [channels, states]; d and dt_bias f32
    [channels]; `state` [states, channels] -> y [T, channels]. `cc/ops/selective_scan` has the
    formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    op = "selective_scan"
    require_act(op, x=x, dt=dt, b=b, c=c)
    require_f32(op, a_log=a_log, d=d, dt_bias=dt_bias)
    if state.layout != "state" or len(state.dims) != 2 or state.dims[0] > _MAX_STATES:
        raise ShapeError(
            f"{op}: {state.name} holds {state.layout} {state.dims}, it must be state (states,"
            f" channels) with at most {_MAX_STATES} states"
        )
    states, channels = state.dims
    require_vector(op, "d", d, channels)
    require_vector(op, "dt_bias", dt_bias, channels)
    expected = (
        (x, (x.rows, channels)),
        (dt, (x.rows, channels)),
        (b, (x.rows, states)),
        (c, (x.rows, states)),
        (a_log, (channels, states)),
    )
    for operand, shape in expected:
        if operand.shape != shape:
            raise ShapeError(
                f"{op}: {operand.name} is {format_shape(operand.shape)}, it must be"
                f" {format_shape(shape)}"
            )
    operands = [x, dt, b, c, a_log, d, dt_bias, state]
    return x.trace.emit(op, operands, [(x.shape, x.dtype)])[0]


def reference(
    inputs: tuple[
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        TorchState,
    ],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32, one token after the other."""
    import torch

    del attributes
    x, dt, b, c, a_log, d, dt_bias, state = inputs
    rows, b, c = x.float(), b.float(), c.float()
    steps = torch.nn.functional.softplus(dt.float() + dt_bias)
    rates = -torch.exp(a_log.T)  # [states, channels]
    y = d * rows
    for run in step.state_runs(state.table):
        h = state.read(run.source)
        for t in range(run.begin, run.end):
            h = torch.exp(steps[t] * rates) * h + b[t, :, None] * (steps[t] * rows[t])
            y[t] += c[t] @ h
        state.pages[run.target] = h
    return (y.to(x.dtype),)
