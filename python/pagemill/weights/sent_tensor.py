"""A tensor that came with a request: what `safetensors` or `torch.save` wrote of it, in memory.

values = SentTensor.read(data)
values.shape         # known before any number is read
values.as_f32()
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, as_f32
from pagemill.weights.safetensors import read_tensors
from pagemill.weights.torch_file import read_torch_tensor

_ZIP = b"PK\x03\x04"
_ZIP_ENTRY = b"PK\x01\x02"
_MAX_ZIP_ENTRIES = 64  # torch.save writes about 7; numbers may look like some, too
_MAX_HEADER_BYTES = 4096  # of safetensors: one tensor takes about 100
_NAME = "the tensor"  # in messages


@dataclass(frozen=True, slots=True)
class SentTensor:
    """Row-major numbers in `data`, of a type of `REAL_DTYPES`."""

    location: TensorLocation
    data: bytes

    @classmethod
    def read(cls, data: bytes) -> SentTensor:
        """Finds the one tensor in `data`; its numbers are not read.

        Raises:
            WeightsError: there is none, or more than one, or its type is not one of `REAL_DTYPES`.
        """
        location = _located(data)
        if location.dtype not in REAL_DTYPES:
            known = ", ".join(REAL_DTYPES)
            raise WeightsError(f"{_NAME} is of {location.dtype}; known: {known}")
        if location.offset + tensor_bytes(location.dtype, location.shape) > len(data):
            raise WeightsError(f"{_NAME} is cut short")
        return cls(location, data)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.location.shape

    def as_f32(self) -> npt.NDArray[np.float32]:
        """The numbers."""
        at = self.location
        size = tensor_bytes(at.dtype, at.shape)
        return as_f32(at.dtype, at.shape, np.frombuffer(self.data, np.uint8, size, at.offset))


def _located(data: bytes) -> TensorLocation:
    if not data.startswith(_ZIP):
        found = list(read_tensors(io.BytesIO(data), _NAME, _MAX_HEADER_BYTES).values())
        if len(found) != 1:
            raise WeightsError(f"{len(found)} tensors, there must be exactly one")
        return found[0]
    # Before zipfile reads a directory that may be as large as the data.
    if data.count(_ZIP_ENTRY) > _MAX_ZIP_ENTRIES:
        raise WeightsError(f"{_NAME}: no file of torch.save")
    return read_torch_tensor(io.BytesIO(data), _NAME)
