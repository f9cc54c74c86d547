"""`compress_tokens`: one vector for each window of a request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_shapes, require_f32
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep


def compress_tokens(x: Tensor, gate: Tensor, bias: Tensor, state: Cache) -> Tensor:
    """x and gate [T, S * C] of S = 1 or 2 parts, bias f32 [m, S * C], `state` [S, 3, C] -> [T, C].

    The row of a token that is the last of m of its request has the mean of their x in each channel,
    weighted with a softmax of gate + bias over tokens; of two parts, the second of these tokens and
    the first of the m before. Other rows are zeros. `cc/ops/compress_tokens` has the formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    op = "compress_tokens"
    require_act(op, x=x, gate=gate)
    require_equal_shapes(op, x, gate)
    require_f32(op, bias=bias)
    dims = state.dims
    fits = len(dims) == 3 and dims[0] in (1, 2) and dims[1] == 3 and dims[0] * dims[2] == x.width
    if state.layout != "state" or not fits:
        raise ShapeError(
            f"{op}: {state.name} holds {state.layout} {dims}, it must be state (1 or 2, 3,"
            f" channels) for rows of {x.width}"
        )
    if len(bias.shape) != 2 or bias.width != x.width:
        raise ShapeError(f"{op}: rows of {x.width}, {bias.name} is {format_shape(bias.shape)}")
    return x.trace.emit(op, [x, gate, bias, state], [((x.rows, dims[2]), x.dtype)])[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, TorchState],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32, one token after the other."""
    import torch

    del attributes
    x, gate, bias, state = inputs
    parts, _, channels = state.pages.shape[1:]
    window = len(bias)
    rows = x.float().reshape(len(x), parts, channels)
    gates = gate.float().reshape(len(x), parts, channels)
    biases = bias.float().reshape(window, parts, channels)
    y = torch.zeros(len(x), channels, device=x.device)
    for run in step.state_runs(state.table):
        sums = state.read(run.source)  # of each part: the largest z, and two sums
        span = next(span for span in step.spans if span.begin <= run.begin < span.end)
        for t in range(run.begin, run.end):
            position = span.context - span.end + t
            if position % window == 0:
                empty = torch.zeros_like(sums[0])
                sums = torch.stack([empty] if parts == 1 else [empty, sums[0]])
            z = gates[t] + biases[position % window]
            starts = sums[:, 1] == 0
            largest = torch.where(starts, z, torch.maximum(sums[:, 0], z))
            old = torch.where(starts, 0, (sums[:, 0] - largest).exp())
            added = (z - largest).exp()
            weights, values = sums[:, 1] * old + added, sums[:, 2] * old + added * rows[t]
            sums = torch.stack([largest, weights, values], 1)
            if position % window == window - 1:
                y[t] = values[-1] / weights[-1]
        state.pages[run.target] = sums
    return (y.to(x.dtype),)
