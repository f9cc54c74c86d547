"""`stream_weights`: how residual streams are mixed around a branch (hyper-connections)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype, require_f32, require_rank, require_vector
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def stream_weights(
    mixes: Tensor, base: Tensor, scale: Tensor, *, iterations: int, eps: float
) -> tuple[Tensor, Tensor]:
    """mixes f32 [T, N (N + 2)], base f32 of a row, scale f32 [3] -> f32 [T, N], what a branch reads
    of each stream, and f32 [T, N, N + 1], what each stream becomes of all streams and of the
    branch's result: the weights of `mix_streams`. `cc/ops/stream_weights` has the formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    _require(mixes, base, scale, kinds=3)
    streams = next((n for n in range(1, mixes.width) if n * (n + 2) == mixes.width), None)
    if streams is None:
        raise ShapeError(f"stream_weights: rows of {mixes.width} are of no number of streams")
    results = [((mixes.rows, streams), "f32"), ((mixes.rows, streams, streams + 1), "f32")]
    attributes = [("iterations", float(iterations)), ("eps", eps)]
    operands = [mixes, base, scale]
    before, after = mixes.trace.emit("stream_weights", operands, results, attributes)
    return before, after


def last_stream_weights(mixes: Tensor, base: Tensor, scale: Tensor, *, eps: float) -> Tensor:
    """mixes f32 [T, N], base f32 [N], scale f32 [1] -> f32 [T, N], as the first of
    `stream_weights`.

    Raises:
        ShapeError: the operands do not fit.
    """
    _require(mixes, base, scale, kinds=1)
    results = [(mixes.shape, "f32")]
    return mixes.trace.emit("stream_weights", [mixes, base, scale], results, [("eps", eps)])[0]


def _require(mixes: Tensor, base: Tensor, scale: Tensor, *, kinds: int) -> None:
    require_dtype("stream_weights", "mixes", mixes, ("f32",))
    require_rank("stream_weights", "mixes", mixes, 2)
    require_f32("stream_weights", base=base, scale=scale)
    require_vector("stream_weights", "base", base, mixes.width)
    if scale.shape != (kinds,):
        shape = format_shape(scale.shape)
        raise ShapeError(f"stream_weights: {scale.name} must be [{kinds}], got {shape}")


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in f32."""
    import torch

    del step
    mixes, base, scale = (x.float() for x in inputs)
    eps = attributes["eps"]
    if len(scale) == 1:
        return ((mixes * scale + base).sigmoid() + eps,)
    width = mixes.shape[-1]
    streams = next(n for n in range(1, width) if n * (n + 2) == width)
    sizes = [streams, streams, streams * streams]
    factors = scale.repeat_interleave(torch.tensor(sizes, device=scale.device))
    before, after, pairs = torch.split(mixes * factors + base, sizes, -1)
    pairs = pairs.reshape(-1, streams, streams).softmax(-1) + eps
    pairs = pairs / (pairs.sum(1, keepdim=True) + eps)
    for _ in range(int(attributes["iterations"]) - 1):
        pairs = pairs / (pairs.sum(2, keepdim=True) + eps)
        pairs = pairs / (pairs.sum(1, keepdim=True) + eps)
    after = torch.cat([pairs.transpose(1, 2), 2 * after.sigmoid()[..., None]], -1)
    return before.sigmoid() + eps, after
