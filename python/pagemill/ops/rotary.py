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
) -> tuple[Tensor, Tensor]:
    """q [T, Hq, D], k [T, Hk, D], positions i32 [T], inv_freq [rot / 2] -> rotated q and k.

    The angle of pair i is position * inv_freq[i] (radians); the first `rot` dimensions rotate. A
    pair is (2i, 2i + 1) where `interleaved`, else (i, i + rot / 2). Cosine and sine are multiplied
    by `mscale`.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("rotary", q=q, k=k)
    require_f32("rotary", inv_freq=inv_freq)
    require_dtype("rotary", "positions", positions, ("i32",))
    for name, tensor in (("q", q), ("k", k)):
        require_rank("rotary", name, tensor, 3)
    head_dim = last_dim("rotary", "q", q)
    if last_dim("rotary", "k", k) != head_dim or k.rows != q.rows or positions.shape != (q.rows,):
        shapes = ", ".join(format_shape(t.shape) for t in (q, k, positions))
        raise ShapeError(f"rotary: q, k and positions do not agree: {shapes}")
    require_rank("rotary", "inv_freq", inv_freq, 1)
    if 2 * int(inv_freq.rows) > head_dim:
        raise ShapeError(f"rotary: {inv_freq.rows} frequencies do not fit heads of {head_dim}")
    attributes: list[tuple[str, float]] = []
    if interleaved:
        attributes.append(("interleaved", 1))
    if mscale != 1.0:
        attributes.append(("mscale", mscale))
    operands = [q, k, positions, inv_freq]
    rotated = q.trace.emit("rotary", operands, [(q.shape, q.dtype), (k.shape, k.dtype)], attributes)
    return rotated[0], rotated[1]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; angles in f32, as in `transformers`."""
    del step
    q, k, positions, inv_freq = inputs
    angles = positions.float()[:, None] * inv_freq.float()
    mscale = attributes.get("mscale", 1.0)
    cos = (angles.cos() * mscale)[:, None, :]
    sin = (angles.sin() * mscale)[:, None, :]
    interleaved = attributes.get("interleaved", 0.0) != 0.0
    return _rotate(q, cos, sin, interleaved), _rotate(k, cos, sin, interleaved)


def _rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    half = cos.shape[-1]
    result = x.float().clone()
    if interleaved:
        even, odd = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        even, odd = slice(0, half), slice(half, 2 * half)
    first, second = x[..., even].float(), x[..., odd].float()
    result[..., even] = first * cos - second * sin
    result[..., odd] = second * cos + first * sin
    return result.to(x.dtype)
