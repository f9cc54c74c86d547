"""Tensors come out of the files of buckets as they went in."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from pagemill.weights.errors import WeightsError
from pagemill.weights.safetensors import read_tensors
from pagemill.weights.tensor_buckets import Bucket, buckets, default_bucket_bytes

TENSORS = {
    "wide": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "bytes": np.arange(5, dtype=np.uint8),
    "half": np.arange(3, dtype=np.float16),
    "none": np.zeros((0, 4), np.float32),
    "scalar": np.float32(7).reshape(()),
}


def read(bucket: Bucket) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bytes of each tensor in the file of `bucket`."""
    file = io.BytesIO()
    bucket.write(file)
    whole = file.getvalue()
    found: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for name, at in read_tensors(file, "bucket").items():
        size = int(np.prod(at.shape)) * {"f32": 4, "i32": 4, "f16": 2, "bf16": 2}.get(at.dtype, 1)
        found[name] = at.dtype, at.shape, whole[at.offset : at.offset + size]
    return found


def test_a_bucket_is_a_safetensors_file() -> None:
    (bucket,) = buckets(TENSORS.items(), 1 << 20)
    found = read(bucket)
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert found[name][1:] == (array.shape, array.tobytes())
    assert [found[name][0] for name in ("wide", "turned", "bytes", "half")] == [
        "f32",
        "i32",
        "u8",
        "f16",
    ]


def test_buckets_are_bounded_but_for_one_large_tensor() -> None:
    tensors = [(str(i), np.zeros(size, np.uint8)) for i, size in enumerate([40, 50, 20, 300, 1])]
    names = [list(read(bucket)) for bucket in buckets(tensors, 100)]
    assert names == [["0", "1"], ["2"], ["3"], ["4"]]
    assert list(buckets([], 100)) == []
    with pytest.raises(ValueError, match="bucket_bytes is 0"):
        list(buckets(tensors, 0))


def test_a_large_model_goes_in_larger_files() -> None:
    assert default_bucket_bytes(1 << 20) == 1 << 30
    assert default_bucket_bytes(1 << 40) == 1 << 34


def test_types_that_checkpoints_do_not_have_are_refused() -> None:
    with pytest.raises(WeightsError, match="'a' is of type complex64; known types are bfloat16"):
        list(buckets([("a", np.zeros(2, np.complex64))], 100))


class TestTensors:
    """Of torch, where it is installed."""

    torch: Any = pytest.importorskip("torch")

    def test_they_are_converted_and_tied_ones_come_once(self) -> None:
        torch = self.torch
        tied = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
        tensors = {"a": tied, "b": tied.detach(), "c": torch.arange(3, dtype=torch.int32)}
        (bucket,) = buckets(tensors.items(), 1 << 20, torch.bfloat16)
        found = read(bucket)
        values = tied.detach().bfloat16().view(torch.uint8).numpy().tobytes()
        assert found["a"] == ("bf16", (2, 3), values)
        assert found["c"][:2] == ("i32", (3,))
        assert "b" not in found

    def test_views_of_the_same_memory_are_tensors_of_their_own(self) -> None:
        torch = self.torch
        matrix = torch.arange(9.0).reshape(3, 3)
        tensors = {"a": matrix, "turned": matrix.T, "bits": matrix.view(torch.int32)}
        (bucket,) = buckets(tensors.items(), 1 << 20)
        found = read(bucket)
        assert found["turned"] == ("f32", (3, 3), matrix.numpy().T.tobytes())
        assert found["bits"] == ("i32", (3, 3), found["a"][2])

    def test_memory_that_is_used_again_is_another_tensor(self) -> None:
        torch = self.torch
        made = ((str(i), torch.full((1000,), float(i))) for i in range(8))
        found = [name for bucket in buckets(made, 1) for name in read(bucket)]
        assert found == [str(i) for i in range(8)]
