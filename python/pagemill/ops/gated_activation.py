"""`gated_activation`: act(gate) * up, the middle of a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.activation import ActivationKind, apply
from pagemill.ops.checks import require_act, require_equal_shapes
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def gated_activation(gate: Tensor, up: Tensor, kind: ActivationKind) -> Tensor:
    """gate, up [N, F] -> act(gate) * up.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("gated_activation", gate=gate, up=up)
    require_equal_shapes("gated_activation", gate, up)
    operands = [gate, up]
    result = (gate.shape, gate.dtype)
    return gate.trace.emit("gated_activation", operands, [result], [("kind", int(kind))])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; computed in f32 for every type of `gate`."""
    del step
    gate, up = inputs
    kind = ActivationKind(int(attributes["kind"]))
    return ((apply(gate.float(), kind) * up.float()).to(gate.dtype),)
