"""`latent_write`: stores the latents of the step's tokens in a layer's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act
from pagemill.ops.trace import Cache, ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchLatentCache, TorchStep


def latent_write(latent: Tensor, rope: Tensor | None, cache: Cache) -> None:
    """latent [T, ...] of R elements a token, the compressed keys and values, and rope [T, ...] of
    P, the rotated key -> side by side, the slots that the step's slot mapping names. Of a cache
    with a row for m tokens, `dims` (R + P, m), the last of each m is stored. Of `dims` (R + P, m,
    n) the last n elements of a row stay in bf16 if the cache is in fp8.

    Raises:
        ShapeError: the operands do not fit.
    """
    parts = [latent] if rope is None else [latent, rope]
    for part in parts:
        require_act("latent_write", latent=part)
    width = sum(part.width for part in parts)
    same_rows = all(part.rows == latent.rows for part in parts)
    if not same_rows or cache.layout != "latent" or cache.dims[0] != width:
        shapes = " and ".join(format_shape(part.shape) for part in parts)
        raise ShapeError(
            f"latent_write: {cache.name} holds {cache.layout} {cache.dims}, latent and rope are"
            f" {shapes}"
        )
    latent.trace.emit("latent_write", [latent, rope, cache], [], row_attributes(cache))


def row_attributes(cache: Cache) -> list[tuple[str, float]]:
    """Attributes of the ops that write and read a latent cache in fp8."""
    return [("bf16_elements", float(cache.dims[2]))] if len(cache.dims) > 2 else []


def reference(
    inputs: tuple[torch.Tensor, torch.Tensor | None, TorchLatentCache],
    attributes: Mapping[str, float],
    step: TorchStep,
) -> Sequence[torch.Tensor]:
    """The op in torch."""
    import torch

    del attributes
    latent, rope, cache = inputs
    slots = step.tables[cache.table].slot_mapping
    rows = latent.flatten(1)
    if rope is not None:
        rows = torch.cat([rows, rope.flatten(1)], -1)
    if cache.tokens_of_row > 1:
        last = (slots + 1) % cache.tokens_of_row == 0
        slots, rows = slots[last] // cache.tokens_of_row, rows[last]
    cache.write(slots, rows)
    return ()
