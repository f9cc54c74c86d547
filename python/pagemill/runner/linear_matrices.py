"""The matrices of a checkpoint that a program multiplies tokens by: what quantization rounds."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from pagemill.ops.program import OpEntry, Program, WeightEntry
from pagemill.tensor.dtypes import DTYPES
from pagemill.weights.location import TensorLocation
from pagemill.weights.stored_matrix import StoredMatrix

_OF_EXPERTS = "grouped_linear"
_PRODUCTS = ("linear", _OF_EXPERTS)
_CHOICE = "moe_route"
_FEWEST_ROWS = 16  # of fewer, which choose or scale, bytes do not count and errors do


def linear_matrices(
    program: Program, tensors: Iterable[TensorLocation], *, only_experts: bool = False
) -> tuple[StoredMatrix, ...]:
    """Those of `tensors` that are matrices, called `<module>.weight`, or stacks of them [experts,
    ...], as they are or transposed, which only linear layers of `program` read: no embedding and
    no router of experts; or only layers of which tokens choose some experts. Tensors that have the
    rows of two matrices in turn are none."""
    of_layers = set(_read_by_layers(program, (_OF_EXPERTS,) if only_experts else _PRODUCTS))
    layouts: dict[TensorLocation, set[bool | None]] = {}
    for entry, tensor in _places(program, tensors):
        layout = _is_transposed(entry) if entry.name in of_layers else None
        layouts.setdefault(tensor, set()).add(layout)
    matrices = (
        StoredMatrix(tensor, transposed)
        for tensor, (transposed, *others) in layouts.items()
        if transposed is not None and not others
    )
    return tuple(matrix for matrix in matrices if _has_matrices(matrix))


def _has_matrices(matrix: StoredMatrix) -> bool:
    dims, name = len(matrix.tensor.shape), matrix.tensor.name
    named = dims == 3 or (dims == 2 and name.endswith(".weight"))
    return named and matrix.shape[-2] >= _FEWEST_ROWS


def _is_transposed(entry: WeightEntry) -> bool | None:
    """None if other rows lie between those of the matrix."""
    if not entry.column_stride:
        return False
    return True if entry.row_stride == DTYPES[entry.dtype].block_bytes else None


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


def _read_by_layers(program: Program, products: Sequence[str]) -> Iterator[str]:
    """The stored weights that nothing reads but linear layers, ops of these names."""
    readers: dict[str, list[OpEntry]] = {}
    for op in program.ops:
        for name in op.inputs:
            if name is not None:
                readers.setdefault(name, []).append(op)
    stacks = {part: stack.name for stack in program.stacks for part in stack.parts}
    routers = _routers(program)
    for entry in program.weights:
        found = readers.get(stacks.get(entry.name, entry.name), [])
        layers = [op for op in found if op.op in products and op not in routers]
        if found and len(layers) == len(found):
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
