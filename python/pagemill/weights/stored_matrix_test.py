"""Rows of matrices are read from any layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagemill.weights.safetensors import read_file
from pagemill.weights.stored_matrix import StoredMatrix

VALUES = torch.arange(24, dtype=torch.float32).reshape(2, 4, 3) / 8


def stored(path: Path, dtype: torch.dtype, *, transposed: bool) -> StoredMatrix:
    tensor = VALUES.transpose(1, 2) if transposed else VALUES
    save_file({"x": torch.zeros(1), "experts.up": tensor.to(dtype).contiguous()}, path)
    return StoredMatrix(read_file(path)["experts.up"], transposed)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows(tmp_path: Path, dtype: torch.dtype, transposed: bool) -> None:
    stack = stored(tmp_path / "a.safetensors", dtype, transposed=transposed)
    assert (stack.shape, stack.module) == ((2, 4, 3), "experts.up")
    assert stack.stored_bytes == 24 * dtype.itemsize
    matrices = list(stack.divided())
    assert [matrix.tensor.name for matrix in matrices] == [
        "experts.up.0.weight",
        "experts.up.1.weight",
    ]
    for matrix, values in zip(matrices, VALUES.numpy(), strict=True):
        assert matrix.shape == (4, 3) and list(matrix.divided()) == [matrix]
        for begin, count in ((0, 4), (1, 2), (3, 1)):
            np.testing.assert_array_equal(matrix.rows(begin, count), values[begin : begin + count])
