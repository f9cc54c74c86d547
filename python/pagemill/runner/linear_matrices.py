"""The matrices of a checkpoint that a program multiplies tokens by: what quantization rounds."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

from pagemill.ops.program import OpEntry, Program, WeightEntry
from pagemill.weights.location import TensorLocation

_PRODUCTS = ("linear", "grouped_linear")
_CHOICE = "moe_route"
_FEWEST_ROWS = 16  # of fewer, which choose or scale, bytes do not count and errors do


def linear_matrices(
    program: Program, tensors: Iterable[TensorLocation]
) -> tuple[TensorLocation, ...]:
    """Those of `tensors` that are matrices [out, in], called `<module>.weight`, or stacks of them
    [experts, out, in], which only linear layers of `program` read: no embedding and no router of
    experts."""
    of_layers = set(_read_by_layers(program))
    readers: dict[TensorLocation, bool] = {}
    for entry, tensor in _places(program, tensors):
        readers[tensor] = readers.get(tensor, True) and entry.name in of_layers
    return tuple(
        tensor for tensor, only_layers in readers.items() if only_layers and _has_matrices(tensor)
    )


def _has_matrices(tensor: TensorLocation) -> bool:
    named = len(tensor.shape) == 3 or (len(tensor.shape) == 2 and tensor.name.endswith(".weight"))
    return named and tensor.shape[-2] >= _FEWEST_ROWS


def _places(
    program: Program, tensors: Iterable[TensorLocation]
) -> Iterator[tuple[WeightEntry, TensorLocation]]:
    """Each weight of the program with the tensor that it is, or is some rows or columns of."""
    by_file: dict[str, list[TensorLocation]] = {}
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        by_file.setdefault(tensor.file, []).append(tensor)
    begins = {file: [tensor.offset for tensor in found] for file, found in by_file.items()}
    for entry in program.weights:
        file = program.files[entry.file]
        index = bisect.bisect_right(begins.get(file, []), entry.offset) - 1
        if index >= 0:
            yield entry, by_file[file][index]


def _read_by_layers(program: Program) -> Iterator[str]:
    """The stored weights that nothing reads but linear layers, as [out, in]."""
    readers: dict[str, list[OpEntry]] = {}
    for op in program.ops:
        for name in op.inputs:
            if name is not None:
                readers.setdefault(name, []).append(op)
    stacks = {part: stack.name for stack in program.stacks for part in stack.parts}
    routers = _routers(program)
    for entry in program.weights:
        found = readers.get(stacks.get(entry.name, entry.name), [])
        layers = [op for op in found if op.op in _PRODUCTS and op not in routers]
        if found and len(layers) == len(found) and not entry.column_stride:
            yield entry.name


def _routers(program: Program) -> list[OpEntry]:
    """The products whose results choose experts."""
    writers = {name: op for op in program.ops for name in op.outputs}
    routers: list[OpEntry] = []
    for choice in program.ops:
        if choice.op != _CHOICE:
            continue
        op = writers.get(choice.inputs[0] or "")
        while op is not None and op.op != "linear":  # what bounds or scales logits
            op = writers.get(op.inputs[0] or "")
        if op is not None:
            routers.append(op)
    return routers
