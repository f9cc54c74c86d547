"""Stacks of experts, and parts of them, equal the file's matrices in every storage form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagemill.ops.program import Program, WeightEntry
from pagemill.ops.shard import Part
from pagemill.ops.trace import ShapeError, Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights import MissingTensorError, ModelSource, WeightsError

SHAPE = (3, 4, 6)
VALUES = torch.arange(3 * 4 * 6, dtype=torch.float32).reshape(SHAPE)
PARTS = [
    (None, None),
    (Part(0, 4, 4), Part(0, 6, 6)),
    (Part(1, 3, 4), None),
    (None, Part(2, 6, 6)),
]


@pytest.fixture(params=["apart", "stacked"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> ModelSource:
    tensors = {"other": torch.zeros(5)}
    if request.param == "stacked":
        tensors["experts.up.weight"] = VALUES.clone()
    else:
        tensors |= {f"experts.{i}.up.weight": VALUES[i].clone() for i in range(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    return ModelSource.open(tmp_path)


def _stored(program: Program, entry: WeightEntry) -> np.ndarray:
    """The values of `entry` in its file."""
    data = Path(program.files[entry.file]).read_bytes()
    row = tensor_bytes(entry.dtype, (1, *entry.shape[1:]))
    stride = entry.row_stride or row
    begins = [entry.offset + i * stride for i in range(entry.shape[0])]
    rows = [np.frombuffer(data[begin : begin + row], "<f4") for begin in begins]
    return np.stack(rows).reshape(entry.shape)


def _values(program: Program, name: str) -> np.ndarray:
    weights = {entry.name: _stored(program, entry) for entry in program.weights}
    stacks = {entry.name: entry for entry in program.stacks}
    if name in weights:
        return weights[name]
    stacked = np.stack([weights[part] for part in stacks[name].parts])
    assert stacked.shape == stacks[name].shape
    return stacked


@pytest.mark.parametrize(("rows", "columns"), PARTS)
def test_parts(source: ModelSource, rows: Part | None, columns: Part | None):
    trace = Trace()
    binder = WeightBinder(trace, source)
    stack = binder.stack("experts", "up", SHAPE, rows=rows, columns=columns)
    row_slice = slice(None) if rows is None else slice(rows.begin, rows.end)
    column_slice = slice(None) if columns is None else slice(columns.begin, columns.end)
    expected = VALUES[:, row_slice, column_slice].numpy()
    assert stack.shape == expected.shape and stack.dtype == "f32"
    np.testing.assert_array_equal(_values(trace.program, stack.name), expected)
    assert binder.stack("experts", "up", SHAPE, rows=rows, columns=columns) == stack
    trace.program.check_integrity()


HEADS = [
    (Part(0, 3, 3), Part(0, 4, 4)),
    (Part(1, 3, 3), Part(0, 3, 4)),
    (Part(0, 2, 3), Part(3, 4, 4)),
]


@pytest.mark.parametrize(("heads", "rows"), HEADS)
def test_matrices_of_heads(heads: Part, rows: Part, tmp_path: Path):
    """They lie one below the other in a matrix, of which no byte is copied."""
    save_file({"proj.weight": VALUES.reshape(12, 6).clone()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    trace = Trace()
    binder = WeightBinder(trace, ModelSource.open(tmp_path))
    matrices = binder.head_matrices("proj", 6, heads=heads, rows=rows)
    expected = VALUES[heads.begin : heads.end, rows.begin : rows.end].numpy()
    assert matrices.shape == expected.shape and not trace.program.stacks
    np.testing.assert_array_equal(_values(trace.program, matrices.name), expected)
    assert binder.head_matrices("proj", 6, heads=heads, rows=rows) == matrices
    binder.check_all_used({})
    with pytest.raises(WeightsError, match="asks for \\[12, 5\\]"):
        binder.head_matrices("proj", 5, heads=heads, rows=rows)


def test_all_experts_must_be_there(source: ModelSource):
    binder = WeightBinder(Trace(), source)
    with pytest.raises(WeightsError, match="up.weight.* (missing|asks for \\[4, 4, 6\\])"):
        binder.stack("experts", "up", (4, 4, 6))
    with pytest.raises(MissingTensorError, match="'experts.0.down.weight' is missing"):
        binder.stack("experts", "down", SHAPE)
    with pytest.raises(WeightsError, match="asks for"):
        binder.stack("experts", "up", (3, 4, 5))


def test_parts_are_alike():
    trace = Trace()
    file = trace.file("f")
    a, b = (trace.weight(n, "f32", (2, w), file=file, offset=0) for n, w in (("a", 3), ("b", 4)))
    with pytest.raises(ShapeError, match=r"stack s: a is f32 \[2, 3\], b is f32 \[2, 4\]"):
        trace.stack("s", [a, b])
