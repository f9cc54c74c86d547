"""`mix_streams`: residual streams mixed by weights, with what a branch adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def mix_streams(x: Tensor, weights: Tensor, y: Tensor | None = None) -> Tensor:
    """x [T, N * W], N streams side by side, weights f32 [T, M, N] or [T, N] -> the sums over n of
    weights[t, m, n] x[t, n], [T, M * W]; with y [T, W] and N + 1 weights, plus weights[t, m, N]
    y[t].

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("mix_streams", x=x)
    require_dtype("mix_streams", "weights", weights, ("f32",))
    rank, last = len(weights.shape), int(weights.shape[-1])
    mixes = int(weights.shape[1]) if rank == 3 else 1
    streams = last if y is None else last - 1
    width = x.width // max(streams, 1)
    fits = rank in (2, 3) and streams >= 1 and weights.rows == x.rows
    if not fits or width * streams != x.width or (y is not None and y.width != width):
        shapes = ", ".join(format_shape(t.shape) for t in (x, weights, y) if t is not None)
        raise ShapeError(f"mix_streams: streams and weights do not fit: {shapes}")
    operands = [x, weights]
    if y is not None:
        require_act("mix_streams", y=y)
        operands.append(y)
    return x.trace.emit("mix_streams", operands, [((x.rows, mixes * width), x.dtype)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, added up in f32."""
    import torch

    del attributes, step
    x, weights, *joined = inputs
    weights = weights.reshape(len(weights), -1, weights.shape[-1]).float()
    streams = x.float().reshape(len(x), weights.shape[-1] - len(joined), -1)
    if joined:
        streams = torch.cat([streams, joined[0].float().reshape(len(x), 1, -1)], 1)
    return ((weights @ streams).flatten(1).to(x.dtype),)
