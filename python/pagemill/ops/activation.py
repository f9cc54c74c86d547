"""`activation`: an elementwise nonlinearity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act_or_f32
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


class ActivationKind(IntEnum):
    """The nonlinearities of `activation` and `gated_activation`; the numbers are the format's."""

    SILU = 0
    GELU = 1  # with the error function
    GELU_TANH = 2
    RELU = 3
    TANH = 4
    QUICK_GELU = 5  # x sigmoid(1.702 x)
    RELU_SQUARED = 6
    IDENTITY = 7  # `gated_activation` multiplies its operands
    SIGMOID = 8
    ELU = 9  # x, or e^x - 1 if x < 0
    SOFTPLUS = 10  # ln(1 + e^x)


def activation(
    x: Tensor, kind: ActivationKind, *, limit: float = 0.0, lower: float | None = None
) -> Tensor:
    """x [N, F] -> act(x), same shape and type: an activation, or f32 as logits are. With a limit >
    0, of x from `lower`, by default -limit, to limit.

    Raises:
        ShapeError: `x` is neither.
    """
    require_act_or_f32("activation", x=x)
    attributes: list[tuple[str, float]] = [("kind", int(kind))]
    if limit:
        attributes.append(("limit", limit))
        if lower is not None and lower != -limit:
            attributes.append(("lower", lower))
    return x.trace.emit("activation", [x], [(x.shape, x.dtype)], attributes)[0]


def apply(x: torch.Tensor, kind: ActivationKind) -> torch.Tensor:
    """act(x) in torch."""
    from torch.nn import functional

    if kind is ActivationKind.SILU:
        return functional.silu(x)
    if kind is ActivationKind.RELU:
        return functional.relu(x)
    if kind is ActivationKind.RELU_SQUARED:
        return functional.relu(x).square()
    if kind is ActivationKind.IDENTITY:
        return x
    if kind is ActivationKind.ELU:
        return functional.elu(x)
    if kind is ActivationKind.SOFTPLUS:
        return functional.softplus(x)
    if kind is ActivationKind.SIGMOID:
        return x.sigmoid()
    if kind is ActivationKind.TANH:
        return x.tanh()
    if kind is ActivationKind.QUICK_GELU:
        return x * (1.702 * x).sigmoid()
    return functional.gelu(x, approximate="tanh" if kind is ActivationKind.GELU_TANH else "none")


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    x, limit = inputs[0], attributes.get("limit", 0.0)
    x = x.clamp(attributes.get("lower", -limit), limit) if limit else x
    return (apply(x, ActivationKind(int(attributes["kind"]))),)
