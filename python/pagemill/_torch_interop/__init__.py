"""The one door to the optional extension between arrays and torch tensors.

    tensor = as_tensor(array)    # over the memory of `array`, if the extension is there
    array = as_array(tensor)

The extension is compiled against one version of torch. Where it is missing, or was compiled for
another, arrays are copied: they are those of a step, and small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # before the extension, which uses its libraries

try:
    from pagemill._torch_interop import _interop
except ImportError:
    _interop = None

SHARES_MEMORY = _interop is not None
"""Whether `as_tensor` copies nothing."""


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The tensor of a C-contiguous int32 or float32 array, which may be read-only: the tensor must
    then not be written to. Keeps the array.

    Raises:
        TypeError, ValueError: the array has another type or layout.
    """
    return torch.tensor(array) if _interop is None else _interop.as_tensor(array)


def as_array(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    """The array over the memory of a contiguous float32 tensor on the CPU, which it keeps.

    Raises:
        ValueError: the tensor has another type, layout or device.
    """
    return tensor.numpy() if _interop is None else _interop.as_array(tensor)
