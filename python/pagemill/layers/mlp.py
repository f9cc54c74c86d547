"""Feed-forward layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, row_parallel
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_KINDS = {
    "gelu": ops.ActivationKind.GELU,
    "gelu_fast": ops.ActivationKind.GELU_TANH,
    "gelu_new": ops.ActivationKind.GELU_TANH,
    "gelu_python": ops.ActivationKind.GELU,
    "gelu_pytorch_tanh": ops.ActivationKind.GELU_TANH,
    "quick_gelu": ops.ActivationKind.QUICK_GELU,
    "relu": ops.ActivationKind.RELU,
    "relu2": ops.ActivationKind.RELU_SQUARED,
    "silu": ops.ActivationKind.SILU,
    "swish": ops.ActivationKind.SILU,
    "tanh": ops.ActivationKind.TANH,
}


def activation_kind(name: str) -> ops.ActivationKind:
    """The activation that a configuration calls `name`.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in _KINDS:
        raise ValueError(f"unknown activation {name!r:.40}; known: {', '.join(_KINDS)}")
    return _KINDS[name]


@dataclass(frozen=True, slots=True)
class MlpParts:
    """The linear layers of a feed-forward layer. `up` names two, gate and up; or one with the rows
    of gate and then of up, or of up and then of gate if those are `gate_last`; or, if it is not
    `gated`, the one there is. All have biases if `bias`,
    `down` alone if `down_bias`, and are stored `transposed` if that is set. `gate_scale` multiplies
    what the activation reads; `limit` bounds gates from above, and what they multiply on both
    sides, if it is not 0; with `limit_activated`, it bounds what the activation makes of gates
    instead. With `deviations`, gates are first cut by `ops.sparse_relu`; every rank then computes
    the whole layer, since the cutoff is that of all gates.
    """

    up: tuple[str, ...] = ("gate_proj", "up_proj")
    down: str = "down_proj"
    gated: bool = True
    gate_last: bool = False
    bias: bool = False
    down_bias: bool = False
    transposed: bool = False
    gate_scale: float = 1.0
    limit: float = 0.0
    limit_activated: bool = False
    deviations: float | None = None


def mlp(
    weights: Weights,
    prefix: str,
    x: Tensor,
    intermediate: int,
    kind: ops.ActivationKind,
    parts: MlpParts = MlpParts(),
    row_shape: Sequence[int] | None = None,
) -> Tensor:
    """x [N, H] -> down(act(gate(x)) * up(x)), or down(act(up(x))) without gates, [N, H] or
    [N, *row_shape]. Ranks divide the intermediate dimension.

    Weights: those of `parts` under `prefix`.
    """
    down = f"{prefix}.{parts.down}"
    part = weights.shard.part(intermediate, weights.block_elements(f"{down}.weight"))
    if parts.deviations is not None and not part.whole:
        weights.note("every rank computes whole feed-forward layers with sparse gates")
        part = Part(0, intermediate, intermediate)
    matrices = 2 if parts.gated else 1

    def project(index: int) -> Tensor:
        rows = part
        if len(parts.up) < matrices:
            first = (1 - index if parts.gate_last else index) * intermediate
            rows = Part(first + part.begin, first + part.end, matrices * intermediate)
        name, shape = f"{prefix}.{parts.up[index % len(parts.up)]}", (part.size,)
        return linear(
            weights, name, x, shape, bias=parts.bias, rows=rows, transposed=parts.transposed
        )

    if parts.gated:
        gate = ops.scale(project(0), parts.gate_scale)
        if parts.deviations is not None:
            gate = ops.sparse_relu(gate, deviations=parts.deviations)
        activated = parts.limit_activated
        inner = gated(gate, project(1), kind, limit=parts.limit, limit_activated=activated)
    else:
        inner = ops.activation(project(0), kind)
    return row_parallel(
        weights,
        down,
        inner,
        x.width,
        columns=part,
        bias=parts.bias or parts.down_bias,
        row_shape=row_shape,
        transposed=parts.transposed,
    )


def gated(
    gate: Tensor, up: Tensor, kind: ops.ActivationKind, *, limit: float, limit_activated: bool
) -> Tensor:
    """act(gate) * up, limited as `MlpParts` says."""
    if limit and limit_activated:
        gate, kind = ops.activation(gate, kind), ops.ActivationKind.IDENTITY
    return ops.gated_activation(gate, up, kind, limit=limit)
