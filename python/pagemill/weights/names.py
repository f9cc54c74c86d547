"""Maps between tensor names of GGUF and of Hugging Face checkpoints, by GGUF architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf_name_map import GgufNames
from pagemill.weights.gguf_names import GGUF_NAMES
from pagemill.weights.location import TensorLocation

_NUMBERED = re.compile(r"(\d+)\.(.+)")


def gguf_names(architecture: str, name: str) -> Sequence[str]:
    """The names that tensor `name` may have in a GGUF file of `architecture`, of which a file has
    at most one.

    >>> gguf_names("llama", "model.layers.7.self_attn.q_proj.weight")
    ['blk.7.attn_q.weight']
    """
    names = _stack_of(architecture, name)
    slices = {name: stored for name, (stored, _) in names.slices.items()}
    layer, inner = _in_layer(names, name)
    if layer is None:
        return _stored(slices | dict(names.top), name)
    return [
        f"{names.blocks}.{layer}.{stored}"
        for modules in (slices | dict(names.modules), names.otherwise)
        for stored in _stored(modules, inner)
    ]


def layer_name(architecture: str, stored: str) -> str:
    """The name that layers use for the tensor `stored` of a GGUF file of `architecture`; `stored`
    itself if none do.

    >>> layer_name("llama", "blk.7.attn_q.weight")
    'model.layers.7.self_attn.q_proj.weight'
    """
    names = GGUF_NAMES[architecture]
    if names.second is not None and stored.startswith(f"{names.second.blocks}."):
        names = names.second
    prefix = f"{names.blocks}."
    slices = {name: stored for name, (stored, _) in names.slices.items()}
    match = _NUMBERED.fullmatch(stored.removeprefix(prefix))
    if match is None or not stored.startswith(prefix):
        return _used(dict(names.top) | slices, stored) or stored
    modules = dict(names.modules) | slices
    inner = _used(modules, match[2]) or _used(names.otherwise, match[2])
    return stored if inner is None else f"{names.layers}.{match[1]}.{inner}"


def as_used(architecture: str, name: str, stored: TensorLocation) -> TensorLocation:
    """The tensor `stored` in a GGUF file of `architecture` as layers use it under `name`.

    Raises:
        WeightsError: it is a slice that the stored tensor does not have.
    """
    names = _stack_of(architecture, name)
    _, inner = _in_layer(names, name)
    if inner in names.slices:
        return _slice(stored, names.slices[inner][1])
    if name.endswith(names.negated_exp):
        return replace(stored, negated_exp=True)
    if name.endswith(names.rows) and len(stored.shape) > 1:
        first, second, *others = stored.shape
        return replace(stored, shape=(first * second, *others))
    return stored


def _stack_of(architecture: str, name: str) -> GgufNames:
    """The names of the stack of layers that `name` is in, or around which it is."""
    names = GGUF_NAMES[architecture]
    second = names.second
    is_second = second is not None and name.startswith(f"{second.layers}.")
    return second if second is not None and is_second else names


def _in_layer(names: GgufNames, name: str) -> tuple[str | None, str]:
    """The number of the layer that `name` is in, and its name there; None and the whole name of
    what is around the layers."""
    prefix = f"{names.layers}."
    layer, _, inner = name.removeprefix(prefix).partition(".")
    around = name.rpartition(".")[0] in names.top or not name.startswith(prefix)
    return (None, name) if around or not layer.isdecimal() else (layer, inner)


def _slice(stored: TensorLocation, index: int) -> TensorLocation:
    count, *shape = stored.shape
    if index >= count or not shape:
        raise WeightsError(
            f"{stored.file}: {stored.name} is {list(stored.shape)}, but a layer uses number {index}"
            " of its first dimension"
        )
    skipped = index * tensor_bytes(stored.dtype, tuple(shape))
    return replace(stored, shape=tuple(shape), offset=stored.offset + skipped)


def _stored(names: Mapping[str, str], name: str) -> list[str]:
    """The stored name of a whole name, or of its module and then its kind, if there is one."""
    if name in names:
        return [names[name]]
    module, _, kind = name.rpartition(".")
    return [f"{names[module]}.{kind}"] if module in names else []


def _used(names: Mapping[str, str], stored: str) -> str | None:
    module, _, kind = stored.rpartition(".")
    for name, known in names.items():
        if known == stored:
            return name
        if known == module:
            return f"{name}.{kind}"
    return None
