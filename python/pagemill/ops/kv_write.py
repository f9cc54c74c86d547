"""`kv_write`: stores the step's keys and values in a layer's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_rank
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchCache, TorchStep


def kv_write(
    k: Tensor, v: Tensor, cache: Cache, *, k_scale: float = 1.0, v_scale: float = 1.0
) -> None:
    """k [T, Hk, D], v [T, Hk, Dv] -> the slots that the step's slot mapping names; a v of Dv < D
    elements with zeros behind them.

    A cache in fp8 holds k / k_scale and v / v_scale; others hold k and v.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("kv_write", k=k, v=v)
    require_rank("kv_write", "k", k, 3)
    require_rank("kv_write", "v", v, 3)
    if cache.layout != "kv" or k.shape[1:] != cache.dims:
        raise ShapeError(
            f"kv_write: {cache.name} holds {cache.layout} {cache.dims}, "
            f"k is {format_shape(k.shape)}"
        )
    if v.shape[:2] != k.shape[:2] or not 0 < v.width <= k.width:
        raise ShapeError(
            f"kv_write: k is {format_shape(k.shape)}, v {format_shape(v.shape)}; v must have as"
            " many heads, of at most as many elements"
        )
    k.trace.emit("kv_write", [k, v, cache], [], scale_attributes(k_scale, v_scale))


def scale_attributes(k_scale: float, v_scale: float) -> list[tuple[str, float]]:
    """Attributes of the ops that use an fp8 cache; the default is 1."""
    scales = (("k_scale", k_scale), ("v_scale", v_scale))
    return [(name, scale) for name, scale in scales if scale != 1.0]


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, TorchCache],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch, whose caches are not in fp8."""
    from torch.nn.functional import pad

    del attributes
    k, v, cache = inputs
    slots = step.tables[cache.table].slot_mapping
    cache.key.index_copy_(0, slots, k.to(cache.key.dtype))
    padded = pad(v, (0, k.shape[-1] - v.shape[-1]))
    cache.value.index_copy_(0, slots, padded.to(cache.value.dtype))
    return ()
