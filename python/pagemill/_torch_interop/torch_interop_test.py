"""Arrays and tensors share memory, and keep it alive."""

from __future__ import annotations

import gc
import os
import warnings
import weakref

import numpy as np
import pytest
import torch

from pagemill import _torch_interop
from pagemill._torch_interop import as_array, as_tensor

if "TEST_SRCDIR" not in os.environ and not _torch_interop.SHARES_MEMORY:  # under Bazel it is built
    pytest.skip("the extension is not built", allow_module_level=True)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 3, 4)])
def test_a_tensor_over_an_array(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch.from_numpy() warns of an array like this
        tensor = as_tensor(array)
    assert tensor.shape == array.shape
    assert tensor.dtype == {np.int32: torch.int32, np.float32: torch.float32}[dtype]
    assert not array.size or tensor.data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_an_array_over_a_tensor() -> None:
    tensor = torch.randn(3, 4)
    array = as_array(tensor)
    assert array.ctypes.data == tensor.data_ptr() and array.shape == (3, 4)
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    assert array.ctypes.data == address and np.isfinite(array).all()


def test_a_tensor_keeps_its_array() -> None:
    class Watched(np.ndarray):
        pass

    array = np.ones(4, np.float32).view(Watched)
    gone = weakref.ref(array)
    tensor = as_tensor(array)
    del array
    gc.collect()
    assert gone() is not None and float(tensor.sum()) == 4
    del tensor
    gc.collect()
    assert gone() is None


def test_what_cannot_be_shared() -> None:
    with pytest.raises(TypeError, match="int32 and float32"):
        as_tensor(np.zeros(3))
    with pytest.raises(ValueError, match="C-contiguous"):
        as_tensor(np.zeros((3, 4), np.float32).T)
    for tensor in (torch.zeros(3, 4).T, torch.zeros(3, dtype=torch.float64)):
        with pytest.raises(ValueError, match="contiguous float32"):
            as_array(tensor)
