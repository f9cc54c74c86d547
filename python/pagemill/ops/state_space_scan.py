"""`state_space_scan`: the recurrence of Mamba-2 layers over each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep

_CHUNK = 16  # tokens: sums of this many decay logarithms keep six digits in f32


def state_space_scan(
    xbc: Tensor,
    dt: Tensor,
    a_log: Tensor,
    d: Tensor,
    dt_bias: Tensor,
    state: Cache,
    *,
    flat: bool = False,
) -> Tensor:
    """xbc [T, heads * head_dim + 2 * groups * states], which holds x, B and C; dt [T, heads];
    a_log, d and dt_bias f32 [heads]; `state` [heads, states, head_dim] -> y [T, groups, heads /
    groups * head_dim], or [T, heads * head_dim] if `flat`. `cc/ops/state_space_scan` has the
    formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    op = "state_space_scan"
    require_act(op, xbc=xbc, dt=dt)
    require_f32(op, a_log=a_log, d=d, dt_bias=dt_bias)
    if state.layout != "state" or len(state.dims) != 3:
        raise ShapeError(
            f"{op}: {state.name} holds {state.layout} {state.dims}, it must be state"
            " (heads, states, head_dim)"
        )
    heads, states, head_dim = state.dims
    for name, vector in (("a_log", a_log), ("d", d), ("dt_bias", dt_bias)):
        require_vector(op, name, vector, heads)
    if dt.shape != (xbc.rows, heads):
        raise ShapeError(
            f"{op}: {dt.name} is {format_shape(dt.shape)}, it must be"
            f" {format_shape((xbc.rows, heads))}"
        )
    groups, rest = divmod(xbc.width - heads * head_dim, 2 * states)
    if groups < 1 or rest or heads % groups:
        raise ShapeError(
            f"{op}: rows of {xbc.width} do not hold x of {heads} heads of {head_dim}, and B and C"
            f" of {states} states for groups of heads"
        )
    row = (heads * head_dim,) if flat else (groups, heads // groups * head_dim)
    operands = [xbc, dt, a_log, d, dt_bias, state]
    return xbc.trace.emit(op, operands, [((xbc.rows, *row), xbc.dtype)])[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, TorchState],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32: products of chunks of tokens, as in section 6 of the paper."""
    import torch

    del attributes
    xbc, dt, a_log, d, dt_bias, state = inputs
    heads, states, head_dim = state.pages.shape[1:]
    inner = heads * head_dim
    rows = xbc.float().reshape(xbc.shape[0], -1)
    groups = (rows.shape[1] - inner) // (2 * states)
    x = rows[:, :inner].reshape(-1, heads, head_dim)
    parts = torch.chunk(rows[:, inner:], 2, dim=1)
    b, c = (
        part.reshape(-1, groups, states).repeat_interleave(heads // groups, dim=1) for part in parts
    )
    dt = torch.nn.functional.softplus(dt.float() + dt_bias)
    log_decay = -torch.exp(a_log) * dt
    y = d[:, None] * x
    for run in step.state_runs(state.table):
        h = state.read(run.source)
        for begin in range(run.begin, run.end, _CHUNK):
            part = slice(begin, min(begin + _CHUNK, run.end))
            h, added = _advance(h, x[part] * dt[part, :, None], log_decay[part], b[part], c[part])
            y[part] += added
        state.pages[run.target] = h
    return (y.to(xbc.dtype),)


def _advance(
    h: torch.Tensor, x: torch.Tensor, log_decay: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advances h [H, N, P] over tokens x [L, H, P], log_decay [L, H], b and c [L, H, N]: returns
    the new h, and the contribution of the states to y."""
    import torch

    total = log_decay.cumsum(0)
    between = total[:, None] - total[None]  # [to, from, H]
    later = torch.ones(between.shape[:2], dtype=torch.bool, device=x.device).triu(1)
    weights = between.masked_fill(later[..., None], -torch.inf).exp()
    y = torch.einsum("lhn,shn,lsh,shp->lhp", c, b, weights, x)
    y += torch.einsum("lhn,hnp->lhp", c, h) * total.exp()[..., None]
    left = (total[-1] - total).exp()
    new = torch.einsum("lh,lhn,lhp->hnp", left, b, x)
    return total[-1].exp()[:, None, None] * h + new, y
