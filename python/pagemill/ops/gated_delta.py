"""`gated_delta`: the gated delta rule over each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep

_MAX_KEYS = 256
_NORM_EPS = 1e-6


def gated_delta(
    qkv: Tensor,
    b: Tensor,
    a: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Cache,
    *,
    by_group: bool = False,
    in_turn: bool = False,
    share_scale: float = 1.0,
) -> Tensor:
    """qkv [T, 2 * groups * keys + heads * values], whose rows hold q, k and v of all, or if
    `by_group` q, k and v of each group; b [T, heads]; a and dt_bias
    [T, heads] and f32 [heads], or heads * keys instead of heads; a_log f32 [heads]; `state`
    [heads, keys, values] -> y [T, heads, values]. Consecutive heads share a group, or if `in_turn`
    those of the same rest of their number by that of groups. `share_scale` multiplies sigmoid(b).
    `cc/ops/gated_delta` has the formula.

    Raises:
        ShapeError: the operands do not fit, or both flags are set.
    """
    op = "gated_delta"
    require_act(op, qkv=qkv, b=b, a=a)
    require_f32(op, a_log=a_log, dt_bias=dt_bias)
    if state.layout != "state" or len(state.dims) != 3 or state.dims[1] > _MAX_KEYS:
        raise ShapeError(
            f"{op}: {state.name} holds {state.layout} {state.dims}, it must be state (heads, keys,"
            f" values) with at most {_MAX_KEYS} keys"
        )
    heads, keys, values = state.dims
    require_vector(op, "a_log", a_log, heads)
    require_vector(op, "dt_bias", dt_bias, a.width)
    for x, widths in ((b, (heads,)), (a, (heads, heads * keys))):
        if x.rows != qkv.rows or x.width not in widths:
            counts = " or ".join(map(str, widths))
            raise ShapeError(
                f"{op}: {x.name} is {format_shape(x.shape)}, it must have {counts} elements for"
                f" each row of {qkv.name}"
            )
    groups, rest = divmod(qkv.width - heads * values, 2 * keys)
    if groups < 1 or rest or heads % groups:
        raise ShapeError(
            f"{op}: rows of {qkv.width} do not hold v of {heads} heads of {values}, and q and k of"
            f" {keys} for groups of heads"
        )
    if by_group and in_turn:
        raise ShapeError(f"{op}: by_group and in_turn exclude each other")
    operands = [qkv, b, a, a_log, dt_bias, state]
    attributes = [("by_group", 1.0)] if by_group else []
    attributes += [("in_turn", 1.0)] if in_turn else []
    attributes += [("share_scale", share_scale)] if share_scale != 1 else []
    shape = (qkv.rows, heads, values)
    return qkv.trace.emit(op, operands, [(shape, qkv.dtype)], attributes)[0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, TorchState],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32, one token after the other."""
    import torch

    qkv, b, a, a_log, dt_bias, state = inputs
    heads, keys, values = state.pages.shape[1:]
    by_group = attributes.get("by_group", 0) == 1
    in_turn = attributes.get("in_turn", 0) == 1
    q, k, v = _parts(qkv.float().reshape(qkv.shape[0], -1), heads, keys, values, by_group, in_turn)
    q, k = _normalize(q) * keys**-0.5, _normalize(k)
    share = b.float().reshape(-1, heads).sigmoid() * attributes.get("share_scale", 1.0)
    steps = torch.nn.functional.softplus(a.float().flatten(1) + dt_bias)
    # [T, heads, 1 or keys]
    decay = (-torch.exp(a_log)[:, None] * steps.reshape(steps.shape[0], heads, -1)).exp()
    y = torch.empty_like(v)
    for run in step.state_runs(state.table):
        s = state.read(run.source)
        for t in range(run.begin, run.end):
            s = s * decay[t, :, :, None]
            change = share[t, :, None] * (v[t] - torch.einsum("hkv,hk->hv", s, k[t]))
            s = s + k[t, :, :, None] * change[:, None]
            y[t] = torch.einsum("hkv,hk->hv", s, q[t])
        state.pages[run.target] = s
    return (y.to(qkv.dtype),)


def _parts(
    rows: torch.Tensor, heads: int, keys: int, values: int, by_group: bool, in_turn: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q and k [T, heads, keys] and v [T, heads, values] from the rows of qkv."""
    groups = (rows.shape[1] - heads * values) // (2 * keys)
    count = heads // groups
    if by_group:
        rows = rows.reshape(-1, groups, 2 * keys + count * values)
    of_q = keys if by_group else groups * keys
    q, k, v = rows[..., :of_q], rows[..., of_q : 2 * of_q], rows[..., 2 * of_q :]
    q, k = (part.reshape(-1, groups, keys) for part in (q, k))
    if in_turn:
        q, k = (part.repeat(1, count, 1) for part in (q, k))
    else:
        q, k = (part.repeat_interleave(count, dim=1) for part in (q, k))
    return q, k, v.reshape(-1, heads, values)


def _normalize(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().sum(-1, keepdim=True) + _NORM_EPS).rsqrt()
