"""`latent_write`: stores the latents of the step's tokens in a layer's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchLatentCache, TorchStep


def latent_write(latent: Tensor, rope: Tensor, cache: Cache) -> None:
    """latent [T, ...] of R elements a token, the compressed keys and values, and rope [T, ...] of
    P, the rotated key -> side by side, the slots that the step's slot mapping names.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("latent_write", latent=latent, rope=rope)
    width = latent.width + rope.width
    if latent.rows != rope.rows or cache.layout != "latent" or cache.dims != (width,):
        raise ShapeError(
            f"latent_write: {cache.name} holds {cache.layout} {cache.dims}, latent and rope are"
            f" {format_shape(latent.shape)} and {format_shape(rope.shape)}"
        )
    latent.trace.emit("latent_write", [latent, rope, cache], [])


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor, TorchLatentCache],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch."""
    import torch

    del attributes
    latent, rope, cache = inputs
    slots = step.tables[cache.table].slot_mapping
    rows = torch.cat([latent.flatten(1), rope.flatten(1)], -1)
    cache.rows.index_copy_(0, slots, rows.to(cache.rows.dtype))
    return ()
