"""What tensors of a GGUF architecture are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GgufNames:
    """What stands for the modules of a layer, and for those around the layers; a whole name stands
    for a tensor that has no kind. `layers` is what is in front of a layer's number, `blocks` what
    files have there; `negated_exp` are ends of names of tensors x that are stored as -exp(x),
    `rows` those of tensors whose first dimension is stored as two. `otherwise` is what stands for
    modules in files that do not have what `modules` says. `slices` are whole names of tensors, in a
    layer or around the layers, that are one index of the first dimension of a stored one. `second`
    are the layers of a second stack, with nothing around them."""

    modules: Mapping[str, str]
    top: Mapping[str, str]
    layers: str = "model.layers"
    blocks: str = "blk"
    negated_exp: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    otherwise: Mapping[str, str] = field(default_factory=dict[str, str])
    slices: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    second: GgufNames | None = None
