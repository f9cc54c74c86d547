"""`kv_write`: stores the step's keys and values in a layer's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_shapes, require_rank
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchCache, TorchStep


def kv_write(
    k: Tensor, v: Tensor, cache: Cache, *, k_scale: float = 1.0, v_scale: float = 1.0
) -> None:
    """k, v [T, Hk, D] -> the slots that the step's slot mapping names.

    A cache in fp8 holds k / k_scale and v / v_scale; others hold k and v.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("kv_write", k=k, v=v)
    require_rank("kv_write", "k", k, 3)
    require_equal_shapes("kv_write", k, v)
    if cache.layout != "kv" or k.shape[1:] != cache.dims:
        raise ShapeError(
            f"kv_write: {cache.name} holds {cache.layout} {cache.dims}, "
            f"k is {format_shape(k.shape)}"
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
    del attributes
    k, v, cache = inputs
    slots = step.tables[cache.table].slot_mapping
    cache.key.index_copy_(0, slots, k.to(cache.key.dtype))
    cache.value.index_copy_(0, slots, v.to(cache.value.dtype))
    return ()
