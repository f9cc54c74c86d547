"""Files of random numbers in place of a checkpoint's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pagemill.weights import WeightsError
from pagemill.weights.random_file import random_file

SHAPES = {
    "a.weight": (300, 500),
    "norm.weight": (7,),
    "a.bias": (3,),
    "a.input_min": (1,),
    "a.input_max": (1,),
    "b.weight": (1100, 1000),
}
_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@pytest.mark.parametrize("dtype", sorted(_TYPES))
def test_values(tmp_path: Path, dtype: str):
    tensors = load_file(random_file(tmp_path, SHAPES, dtype))
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == SHAPES
    assert {tensor.dtype for tensor in tensors.values()} == {_TYPES[dtype]}
    assert bool((tensors["norm.weight"] == 1).all()) and not tensors["a.bias"].any()
    assert tensors["a.input_min"] == -torch.inf and tensors["a.input_max"] == torch.inf
    for name in ("a.weight", "b.weight"):
        values = tensors[name].float().numpy()
        # Means and deviations of 150,000 numbers and more, cut off to 8 bits in bf16.
        assert abs(values.mean()) < 1e-3 and abs(values.std() - 0.02) < 1e-3
    assert not np.array_equal(
        tensors["a.weight"].float().flatten()[:9], tensors["b.weight"].float().flatten()[:9]
    )


def test_it_is_written_once(tmp_path: Path):
    path = random_file(tmp_path, SHAPES, "bf16")
    before = path.stat()
    assert random_file(tmp_path, SHAPES, "bf16") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert random_file(tmp_path, {"a.weight": (2, 2)}, "bf16") != path
    assert random_file(tmp_path / "other", SHAPES, "bf16").read_bytes() == path.read_bytes()


def test_without_values_it_takes_no_space(tmp_path: Path):
    shapes = {"a.weight": (2**12, 2**12), "a.input_max": ()}
    path = random_file(tmp_path, shapes, "f32", values=False)
    assert path.stat().st_size > 2**26 and path.stat().st_blocks * 512 < 2**20
    assert load_file(path)["a.input_max"] == torch.inf


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="choose another folder with --cache-dir"):
        random_file(tmp_path / "file", SHAPES, "f32")
