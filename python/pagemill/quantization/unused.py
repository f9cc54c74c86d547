"""Tensors of a model that no layer uses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pagemill.quantization.base import Method
from pagemill.quantization.kv_scales import is_attention_scale
from pagemill.weights.errors import UnusedTensorError
from pagemill.weights.json_file import shown
from pagemill.weights.source import ModelSource

_SHOWN = 5


def check_all_used(
    source: ModelSource, method: Method, claimed: Collection[str], ignored: Mapping[str, str]
) -> bool:
    """Compares the tensors of `source` with those `claimed` (stored names) by all programs of the
    model.

    `ignored` has patterns (of whole names, as layers use them) of tensors that the family may leave
    unread, each with its reason; a pattern for `x.weight` holds for all tensors that replace that
    weight. Returns true if scales of attention are among the unread tensors.

    Raises:
        UnusedTensorError: there are others, with the first names.
    """
    patterns = re.compile("|".join(ignored))
    scales, unused = False, list[str]()
    for tensor in source.tensors:
        if tensor.name in claimed:
            continue
        name = source.name_of(tensor)
        module, _, kind = name.rpartition(".")
        if is_attention_scale(name):
            scales = True
        elif not (
            (ignored and patterns.fullmatch(f"{module}.weight" if kind in method.parts else name))
            or method.may_ignore(tensor)
        ):
            unused.append(tensor.name)
    if unused:
        names = ", ".join(map(shown, sorted(unused)[:_SHOWN]))
        more = ", ..." if len(unused) > _SHOWN else ""
        raise UnusedTensorError(
            f"{source.path}: {source.architecture} does not use {len(unused)} of the model's"
            f" tensors: {names}{more}; they belong to another architecture or to a feature that"
            " the configuration turns off: correct it, or use another checkpoint"
        )
    return scales
