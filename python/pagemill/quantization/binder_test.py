"""Vectors, numbers and transposed matrices, in types and shapes in which checkpoints have them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagemill.ops.program import CONSTANTS_PATH, Program
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor, Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.weights import ModelSource, WeightsError

MATRIX = torch.arange(12, dtype=torch.float32).reshape(3, 4)


@pytest.fixture(name="binder", params=[torch.float32, torch.bfloat16])
def _binder(request: pytest.FixtureRequest, tmp_path: Path) -> WeightBinder:
    tensors = {
        "vector": MATRIX.reshape(12),
        "row": MATRIX.reshape(1, 12),
        "matrix": MATRIX,
        "scalar": torch.tensor(0.5),
        "one": torch.tensor([0.25]),
        "infinite": torch.tensor([torch.inf]),
        "layer.weight": MATRIX,
    }
    save_file(
        {name: tensor.to(request.param).clone() for name, tensor in tensors.items()},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    return WeightBinder(Trace(), ModelSource.open(tmp_path))


def _values(program: Program, tensor: Tensor) -> np.ndarray:
    (entry,) = (weight for weight in program.weights if weight.name == tensor.name)
    path = program.files[entry.file]
    data = bytes(program.constants) if path == CONSTANTS_PATH else Path(path).read_bytes()
    return np.frombuffer(data, "<f4", int(np.prod(entry.shape)), entry.offset).reshape(entry.shape)


@pytest.mark.parametrize(
    ("name", "stored"), [("vector", None), ("row", None), ("matrix", (3, 4))], ids=str
)
@pytest.mark.parametrize("part", [None, Part(4, 8, 12)], ids=["whole", "part"])
def test_vectors_of_any_stored_shape(
    binder: WeightBinder, name: str, stored: tuple[int, int] | None, part: Part | None
) -> None:
    tensor = binder.vector(name, 12, part=part, stored=stored)
    expected = np.arange(12)[part.begin : part.end] if part else np.arange(12)
    assert tensor.shape == expected.shape
    assert _values(binder.trace.program, tensor).tolist() == expected.tolist()


def test_a_vector_of_another_shape_is_rejected(binder: WeightBinder) -> None:
    with pytest.raises(WeightsError, match=r"matrix is \[3, 4\], .* asks for \[12\]"):
        binder.vector("matrix", 12)
    with pytest.raises(WeightsError, match=r"asks for \[4, 3\]"):
        binder.vector("matrix", 12, stored=(4, 3))


def test_numbers(binder: WeightBinder) -> None:
    assert (binder.number("scalar"), binder.number("one")) == (0.5, 0.25)
    with pytest.raises(WeightsError, match="infinite is inf, not a finite number"):
        binder.number("infinite")
    assert binder.number("infinite", finite=False) == math.inf
    with pytest.raises(WeightsError, match=r"row is \[1, 12\]"):
        binder.number("row")


@pytest.mark.parametrize(
    ("rows", "columns", "skipped", "shape"),
    [
        (None, None, 0, (4, 3)),
        (Part(1, 3, 4), None, 1, (2, 3)),
        (None, Part(1, 3, 3), 4, (4, 2)),
    ],
)
def test_transposed_matrices_are_read_with_strides(
    binder: WeightBinder,
    rows: Part | None,
    columns: Part | None,
    skipped: int,
    shape: tuple[int, int],
) -> None:
    whole = binder.linear("layer", (4, 3), transposed=True)
    part = binder.linear("layer", (4, 3), rows=rows, columns=columns, transposed=True)
    entries = {weight.name: weight for weight in binder.trace.program.weights}
    first, entry = entries[whole.name], entries[part.name]
    element = 4 if entry.dtype == "f32" else 2
    assert entry.shape == part.shape == shape
    assert entry.offset - first.offset == skipped * element
    assert (entry.row_stride, entry.column_stride) == (element, 4 * element)


def test_a_transposed_matrix_of_another_shape_is_rejected(binder: WeightBinder) -> None:
    with pytest.raises(WeightsError, match=r"layer.weight is \[3, 4\], .* asks for \[4, 3\]"):
        binder.linear("layer", (3, 4), transposed=True)


def test_vectors_one_after_the_other(binder: WeightBinder) -> None:
    tensor = binder.vectors(["vector", "row"], 12)
    assert _values(binder.trace.program, tensor).tolist() == [*range(12), *range(12)]
    with pytest.raises(WeightsError, match="matrix"):
        binder.vectors(["vector", "matrix"], 12)


def test_a_constant_is_computed_of_several_tensors(binder: WeightBinder) -> None:
    tensors = {"row": (12,), "matrix": (3, 4)}
    tensor = binder.computed("sum", (4, 3), tensors, lambda v, m: (v.reshape(3, 4) + 2 * m).T)
    found = _values(binder.trace.program, tensor)
    assert found.tolist() == (3 * MATRIX.T).tolist()
    with pytest.raises(WeightsError, match=r"matrix is \[3, 4\], .* asks for \[4, 3\]"):
        binder.computed("other", (3,), {"matrix": (4, 3)}, lambda m: m[:, 0])


def test_inverse_norms_of_rows(binder: WeightBinder) -> None:
    norms = binder.inverse_norms("matrix", (3, 4))
    np.testing.assert_allclose(_values(binder.trace.program, norms), 1 / MATRIX.norm(dim=1))


@pytest.mark.parametrize("has_bias", [False, True])
def test_taps_with_a_batch_norm_behind_them(tmp_path: Path, has_bias: bool) -> None:
    convolution = torch.nn.Conv1d(3, 3, 2, groups=3, bias=has_bias)
    norm = torch.nn.BatchNorm1d(3, eps=0.1).eval()
    for parameter in (norm.weight, norm.bias, norm.running_mean):
        torch.nn.init.normal_(parameter)
    norm.running_var.uniform_(0.5, 2)
    tensors = {f"norm.{name}": each for name, each in norm.state_dict().items()}
    tensors |= {f"conv.{name}": each for name, each in convolution.state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    binder = WeightBinder(Trace(), ModelSource.open(tmp_path))
    taps, bias = (
        torch.tensor(_values(binder.trace.program, each))
        for each in binder.normalized_taps("conv", "norm", (3, 2), 0.1, bias=has_bias)
    )
    x = torch.randn(1, 3, 7, generator=torch.Generator().manual_seed(1))
    found = torch.nn.functional.conv1d(x, taps[:, None], bias, groups=3)
    torch.testing.assert_close(found, norm(convolution(x)))
    with pytest.raises(WeightsError, match=r"conv.weight is \[3, 1, 2\]"):
        binder.normalized_taps("conv", "norm", (3, 4), 0.1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bfloat16])
def test_whole_numbers_of_any_type(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"table": MATRIX.to(dtype)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    binder = WeightBinder(Trace(), ModelSource.open(tmp_path))
    table = binder.integers("table", (3, 4))
    assert _values(binder.trace.program, table).tolist() == MATRIX.tolist()
    with pytest.raises(WeightsError, match=r"table has shape \[3, 4\], expected \[4, 3\]"):
        binder.integers("table", (4, 3))


def test_whole_numbers_that_f32_does_not_hold(tmp_path: Path) -> None:
    save_file({"table": torch.tensor([2**24 + 1])}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    binder = WeightBinder(Trace(), ModelSource.open(tmp_path))
    with pytest.raises(WeightsError, match="table has whole numbers above 16777216"):
        binder.integers("table", (1,))


def test_exponentials_of_a_vector(tmp_path: Path) -> None:
    save_file({"v": torch.tensor([0.5, -1.0])}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    binder = WeightBinder(Trace(), ModelSource.open(tmp_path))
    products = _values(binder.trace.program, binder.exponentials("v", [2.0, 3.0]))
    np.testing.assert_allclose(products, [2 * np.exp(0.5), 3 * np.exp(-1.0)], rtol=1e-6)
    with pytest.raises(WeightsError, match="v has an entry that is too large, or NaN"):
        binder.exponentials("v", [3e38, 1.0])
