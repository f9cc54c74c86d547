"""`causal_conv`: the convolution in front of the scan of state-space layers, or alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pagemill.ops.activation import ActivationKind, apply
from pagemill.ops.checks import require_act, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep


def causal_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Cache,
    kind: ActivationKind = ActivationKind.SILU,
) -> Tensor:
    """x [T, C], weight f32 [C, ..., K], bias [C] -> the activation, SILU or IDENTITY, of the
    depthwise convolution of each request's rows, [T, C]. `state` holds a request's last K - 1 rows
    of x.

    Raises:
        ShapeError: the operands do not fit, or the activation is another.
    """
    if kind not in (ActivationKind.SILU, ActivationKind.IDENTITY):
        raise ShapeError(f"causal_conv: {kind.name} is not supported")
    require_act("causal_conv", x=x)
    require_f32("causal_conv", weight=weight, bias=bias)
    require_vector("causal_conv", "bias", bias, x.width)
    if weight.shape[0] != x.width:
        raise ShapeError(
            f"causal_conv: rows of {x.width}, {weight.name} is {format_shape(weight.shape)}"
        )
    dims = (weight.width - 1, x.width)
    if state.layout != "state" or state.dims != dims:
        raise ShapeError(
            f"causal_conv: {state.name} holds {state.layout} {state.dims}, it must be state {dims}"
        )
    operands = [x, weight, bias, state]
    attributes = [] if kind is ActivationKind.SILU else [("kind", float(kind))]
    return x.trace.emit("causal_conv", operands, [(x.shape, x.dtype)], attributes)[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, TorchState],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in f32."""
    import torch

    kind = ActivationKind(int(attributes.get("kind", ActivationKind.SILU)))
    x, weight, bias, state = inputs
    channels, history = state.pages.shape[2], state.pages.shape[1]
    taps = weight.float().reshape(channels, 1, history + 1)
    rows = x.float().reshape(x.shape[0], channels)
    y = torch.empty_like(rows)
    for run in step.state_runs(state.table):
        run_rows = torch.cat([state.read(run.source), rows[run.begin : run.end]])
        convolved = torch.nn.functional.conv1d(run_rows.T, taps, bias, groups=channels)
        y[run.begin : run.end] = apply(convolved.T, kind)
        state.pages[run.target] = run_rows[-history:]
    return (y.to(x.dtype),)
