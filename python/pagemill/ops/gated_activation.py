"""`gated_activation`: act(gate) * up, the middle of a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.activation import ActivationKind, apply
from pagemill.ops.checks import require_act, require_equal_shapes
from pagemill.ops.trace import ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def gated_activation(
    gate: Tensor,
    up: Tensor,
    kind: ActivationKind,
    *,
    limit: float = 0.0,
    up_offset: float = 0.0,
) -> Tensor:
    """gate, up [N, F] -> act(gate) * up. With a limit > 0, act(min(gate, limit)) times (up, from
    -limit to limit, plus `up_offset`).

    Raises:
        ShapeError: the operands do not fit, or there is an offset without a limit.
    """
    require_act("gated_activation", gate=gate, up=up)
    require_equal_shapes("gated_activation", gate, up)
    operands = [gate, up]
    result = (gate.shape, gate.dtype)
    attributes: list[tuple[str, float]] = [("kind", int(kind))]
    if limit:
        attributes += [("limit", limit), ("up_offset", up_offset)]
    elif up_offset:
        raise ShapeError("gated_activation: up_offset needs a limit")
    return gate.trace.emit("gated_activation", operands, [result], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; computed in f32 for every type of `gate`."""
    del step
    gate, up = inputs
    kind = ActivationKind(int(attributes["kind"]))
    x, factor = gate.float(), up.float()
    limit = attributes.get("limit", 0.0)
    if limit:
        x, factor = x.clamp(max=limit), factor.clamp(-limit, limit) + attributes["up_offset"]
    return ((apply(x, kind) * factor).to(gate.dtype),)
