"""`rotary`: rotary position embedding of queries and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act, require_dtype, require_f32, require_rank
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def rotary(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    inv_freq: Tensor,
    *,
    interleaved: bool = False,
    mscale: float = 1.0,
    begin: int = 0,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """q [T, Hq, D], k [T, Hk, D], positions i32 [T], inv_freq [rot / 2] -> rotated q and k.

    The angle of pair i is (position + offset) * inv_freq[i] (radians); the `rot` dimensions from
    `begin` on rotate. With positions [T, N] and inv_freq [N, rot / 2] it is the sum over d of
    (position[d] + offset) * inv_freq[d, i].
    A pair is (2i, 2i + 1) if `interleaved`, else (i, i + rot / 2). Cosine and sine are
    multiplied by `mscale`.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("rotary", q=q, k=k)
    require_f32("rotary", inv_freq=inv_freq)
    require_dtype("rotary", "positions", positions, ("i32",))
    for name, tensor in (("q", q), ("k", k)):
        require_rank("rotary", name, tensor, 3)
    head_dim = last_dim("rotary", "q", q)
    dims, pairs = inv_freq.shape[:-1], int(inv_freq.shape[-1])
    if last_dim("rotary", "k", k) != head_dim or k.rows != q.rows or positions.rows != q.rows:
        shapes = ", ".join(format_shape(t.shape) for t in (q, k, positions))
        raise ShapeError(f"rotary: q, k and positions do not agree: {shapes}")
    if len(dims) > 1 or positions.shape[1:] != dims:
        shapes = ", ".join(format_shape(t.shape) for t in (positions, inv_freq))
        raise ShapeError(f"rotary: positions and inv_freq do not agree: {shapes}")
    if not 0 <= begin <= head_dim - 2 * pairs:
        raise ShapeError(
            f"rotary: {pairs} frequencies do not fit heads of {head_dim} from {begin} on"
        )
    attributes: list[tuple[str, float]] = []
    if interleaved:
        attributes.append(("interleaved", 1))
    if mscale != 1.0:
        attributes.append(("mscale", mscale))
    if begin:
        attributes.append(("begin", float(begin)))
    if offset:
        attributes.append(("offset", float(offset)))
    operands = [q, k, positions, inv_freq]
    rotated = q.trace.emit("rotary", operands, [(q.shape, q.dtype), (k.shape, k.dtype)], attributes)
    return rotated[0], rotated[1]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; angles in f32, as in `transformers`."""
    del step
    q, k, positions, inv_freq = inputs
    if inv_freq.dim() == 1:
        positions, inv_freq = positions[:, None], inv_freq[None]
    positions = positions + int(attributes.get("offset", 0))
    angles = (positions.float()[..., None] * inv_freq.float()).sum(1)
    mscale = attributes.get("mscale", 1.0)
    cos = (angles.cos() * mscale)[:, None, :]
    sin = (angles.sin() * mscale)[:, None, :]
    interleaved = attributes.get("interleaved", 0.0) != 0.0
    begin, half = int(attributes.get("begin", 0)), cos.shape[-1]
    if interleaved:
        even, odd = slice(begin, begin + 2 * half, 2), slice(begin + 1, begin + 2 * half, 2)
    else:
        even, odd = slice(begin, begin + half), slice(begin + half, begin + 2 * half)
    return _rotate(q, cos, sin, even, odd), _rotate(k, cos, sin, even, odd)


def _rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, even: slice, odd: slice
) -> torch.Tensor:
    result = x.float().clone()
    first, second = x[..., even].float(), x[..., odd].float()
    result[..., even] = first * cos - second * sin
    result[..., odd] = second * cos + first * sin
    return result.to(x.dtype)
