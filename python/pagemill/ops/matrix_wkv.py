"""`matrix_wkv`: the recurrences of RWKV-5, RWKV-6 and RWKV-7 over each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_f32, require_vector
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchState, TorchStep

_MAX_KEYS = 256
_DECAY_SCALE = -0.60653066  # -exp(-1/2), of RWKV-7
_LEAST_SQUARES = 1e-24  # of the norm of a removed key
_OP = "matrix_wkv"


@dataclass(frozen=True, slots=True)
class KeyRemoval:
    """What removes keys from the state in RWKV-7, for H heads of K keys: the in-context learning
    rate of each key and token before its sigmoid, [T, ...] with rows of H * K; what keys are
    multiplied with before they are removed, and how much the rate weakens those that are added,
    f32 [H * K]."""

    rate: Tensor
    removal: Tensor
    boost: Tensor


def matrix_wkv(
    receptance: Tensor, decay: Tensor, key: Tensor, value: Tensor, bonus: Tensor, state: Cache
) -> Tensor:
    """RWKV-5 and RWKV-6: receptance and key [T, ...] with rows of H * K elements, value of H * V,
    decay as key or f32 [H * K], bonus f32 [H * K], `state` [H, K, V] -> y [T, H, V].
    `cc/ops/matrix_wkv` has the formula.

    Raises:
        ShapeError: the operands do not fit.
    """
    shape = _check(receptance, decay, key, value, bonus, state)
    operands = [receptance, decay, key, value, bonus, None, None, None, state]
    return key.trace.emit(_OP, operands, [(shape, value.dtype)])[0]


def matrix_wkv_with_removal(
    receptance: Tensor,
    decay: Tensor,
    key: Tensor,
    value: Tensor,
    bonus: Tensor,
    removal: KeyRemoval,
    state: Cache,
) -> tuple[Tensor, Tensor]:
    """RWKV-7: operands as those of `matrix_wkv` -> y, what the states have after each token, and
    what the bonus adds of the token's own value, both [T, H, V].

    Raises:
        ShapeError: the operands do not fit.
    """
    shape = _check(receptance, decay, key, value, bonus, state)
    _check_rows("rate", removal.rate, key)
    vectors = {"removal": removal.removal, "boost": removal.boost}
    require_f32(_OP, **vectors)
    for name, vector in vectors.items():
        require_vector(_OP, name, vector, key.width)
    operands = [receptance, decay, key, value, bonus, removal.rate, *vectors.values(), state]
    results = [(shape, value.dtype)] * 2
    y, own = key.trace.emit(_OP, operands, results)
    return y, own


def _check(
    receptance: Tensor, decay: Tensor, key: Tensor, value: Tensor, bonus: Tensor, state: Cache
) -> tuple[int | str, ...]:
    """Returns the shape of the result."""
    if state.layout != "state" or len(state.dims) != 3 or state.dims[1] > _MAX_KEYS:
        raise ShapeError(
            f"{_OP}: {state.name} holds {state.layout} {state.dims}, it must be state (heads, keys,"
            f" values) with at most {_MAX_KEYS} keys"
        )
    heads, keys, values = state.dims
    require_act(_OP, key=key, value=value)
    _check_rows("receptance", receptance, key)
    if len(decay.shape) == 1:
        require_f32(_OP, decay=decay)
        require_vector(_OP, "decay", decay, key.width)
    else:
        _check_rows("decay", decay, key)
    require_f32(_OP, bonus=bonus)
    require_vector(_OP, "bonus", bonus, key.width)
    if key.width != heads * keys or value.width != heads * values or value.rows != key.rows:
        raise ShapeError(
            f"{_OP}: key is {format_shape(key.shape)} and value {format_shape(value.shape)}, they"
            f" must have rows of {heads * keys} and {heads * values} elements"
        )
    return (value.rows, heads, values)


def _check_rows(name: str, x: Tensor, key: Tensor) -> None:
    require_act(_OP, **{name: x})
    if (x.rows, x.width) != (key.rows, key.width):
        raise ShapeError(
            f"{_OP}: {name} ({x.name}) is {format_shape(x.shape)}, it must have as many rows and"
            f" elements as key, {format_shape(key.shape)}"
        )


def reference(
    inputs: tuple[
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor,
        torch.Tensor | None,
        torch.Tensor | None,
        torch.Tensor | None,
        TorchState,
    ],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, in f32, one token after the other."""
    import torch

    del attributes
    receptance, decay, key, value, bonus, rate, removal, boost, state = inputs
    heads, keys, values = state.pages.shape[1:]
    tokens, dtype = key.shape[0], value.dtype

    def rows(x: torch.Tensor) -> torch.Tensor:
        """[T or 1, heads, keys]."""
        return x.float().reshape(-1, heads, keys)

    r, k, v = rows(receptance), rows(key), value.float().reshape(tokens, heads, values)
    w = rows(decay).expand(tokens, -1, -1)
    removed, share = torch.zeros_like(k), torch.zeros_like(k)
    if rate is None or removal is None or boost is None:
        factors = (-w.exp()).exp()
    else:
        factors = (_DECAY_SCALE * w.sigmoid()).exp()
        a, x = rows(rate).sigmoid(), rows(removal) * k
        removed = x / x.square().sum(-1, keepdim=True).clamp(min=_LEAST_SQUARES).sqrt()
        share = a * removed
        k = k * (1 + rows(boost) * (a - 1))
    own = (r * rows(bonus) * k).sum(-1, keepdim=True) * v
    y = torch.empty_like(v)
    for run in step.state_runs(state.table):
        s = state.read(run.source)
        for t in range(run.begin, run.end):
            before = s
            s = factors[t, :, :, None] * s + k[t, :, :, None] * v[t, :, None]
            predicted = torch.einsum("hkv,hk->hv", before, removed[t])
            s = s - share[t, :, :, None] * predicted[:, None]
            y[t] = torch.einsum("hkv,hk->hv", before if rate is None else s, r[t])
        state.pages[run.target] = s
    return ((y + own).to(dtype),) if rate is None else (y.to(dtype), own.to(dtype))
