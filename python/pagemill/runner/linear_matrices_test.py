"""Which tensors of a program quantization may round."""

from __future__ import annotations

import pytest

from pagemill import ops
from pagemill.ops.program import ACT
from pagemill.ops.trace import Tensor, Trace
from pagemill.runner.linear_matrices import linear_matrices
from pagemill.weights.location import TensorLocation

WIDTH = 32


class Traced:
    """A program over one file, and the tensors of that file."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.tensors: list[TensorLocation] = []
        self.x = self.trace.input("x", ACT, ("tokens", WIDTH))
        self._end = 0

    def stored(self, name: str, *shape: int) -> TensorLocation:
        location = TensorLocation(name, "f32", shape, "weights", self._end)
        size = 4
        for dim in shape:
            size *= dim
        self._end += size
        self.tensors.append(location)
        return location

    def weight(self, at: TensorLocation, *shape: int, name: str = "", skipped: int = 0) -> Tensor:
        file = self.trace.file("weights")
        offset = at.offset + 4 * skipped
        return self.trace.weight(name or at.name, "f32", shape, file=file, offset=offset)

    def linear(self, x: Tensor, name: str, rows: int, dtype: str = ACT) -> Tensor:
        weight = self.weight(self.stored(name, rows, x.width), rows, x.width)
        return ops.linear(x, weight, dtype=dtype)

    @property
    def chosen(self) -> list[str]:
        """Their names, of transposed ones behind "^"."""
        found = linear_matrices(self.trace.program, self.tensors)
        return sorted(("^" if m.transposed else "") + m.tensor.name for m in found)


@pytest.fixture(name="traced")
def _traced() -> Traced:
    return Traced()


def test_linear_layers_but_no_gates(traced: Traced) -> None:
    traced.linear(traced.x, "up.weight", 64)
    traced.linear(traced.x, "gate.weight", 8)
    traced.stored("unread.weight", 64, WIDTH)
    assert traced.chosen == ["up.weight"]


def test_a_matrix_that_is_read_in_parts(traced: Traced) -> None:
    """By layers alone, or by one that needs it as it is."""
    for name in ("qkv.weight", "shared.weight"):
        at = traced.stored(name, 64, WIDTH)
        ops.linear(traced.x, traced.weight(at, 32, WIDTH, name=f"{name}.0"))
        part = traced.weight(at, 32, WIDTH, name=f"{name}.1", skipped=32 * WIDTH)
        if name == "qkv.weight":
            ops.linear(traced.x, part)
        else:
            ops.embedding(traced.trace.input("ids", "i32", ("tokens",)), part)
    assert traced.chosen == ["qkv.weight"]


def test_no_tied_embedding(traced: Traced) -> None:
    ids = traced.trace.input("ids", "i32", ("tokens",))
    table = traced.weight(traced.stored("embed.weight", 99, WIDTH), 99, WIDTH)
    rows = traced.trace.input("logits_rows", "i32", ("logits_rows",))
    hidden = traced.linear(ops.embedding(ids, table), "layer.weight", WIDTH)
    ops.linear(ops.select_rows(hidden, rows), table)
    assert traced.chosen == ["layer.weight"]


def test_experts_but_no_router(traced: Traced) -> None:
    count = 24
    logits = ops.scale(traced.linear(traced.x, "router.weight", count, "f32"), 0.5)
    ids, _ = ops.moe_route(logits, ops.Routing(2))
    at = traced.stored("experts.up", count, 48, WIDTH)
    (up,) = ops.grouped_linear(traced.x, ids, traced.weight(at, count, 48, WIDTH))
    matrices = [traced.stored(f"experts.{i}.down.weight", WIDTH, 48) for i in range(count)]
    parts = [traced.weight(matrix, WIDTH, 48) for matrix in matrices]
    ops.grouped_linear(up, ids, traced.trace.stack("down", parts))
    assert traced.chosen == sorted(["experts.up", *(matrix.name for matrix in matrices)])


def turned(traced: Traced, at: TensorLocation, rows: int, first: int, stride: int) -> Tensor:
    """Rows of a matrix that is stored as [in, out]: those from `first` on, every `stride`."""
    return traced.trace.weight(
        f"{at.name}.{first}",
        "f32",
        (rows, at.shape[0]),
        file=traced.trace.file("weights"),
        offset=at.offset + 4 * first,
        row_stride=4 * stride,
        column_stride=4 * at.shape[1],
    )


def test_transposed_matrices(traced: Traced) -> None:
    """Unless their rows lie in turn with others', or something reads them as they are, too."""
    for name, firsts, stride in (("qkv", (0, 32), 1), ("in_turn", (0, 1), 2)):
        at = traced.stored(f"{name}.weight", WIDTH, 64)
        for first in firsts:
            ops.linear(traced.x, turned(traced, at, 32, first, stride))
    both = traced.stored("both.weight", WIDTH, WIDTH)
    ops.linear(traced.x, turned(traced, both, WIDTH, 0, 1))
    ops.linear(traced.x, traced.weight(both, WIDTH, WIDTH))
    few = traced.stored("few.weight", WIDTH, 8)  # eight outputs
    ops.linear(traced.x, turned(traced, few, 8, 0, 1))
    assert traced.chosen == ["^qkv.weight"]
