"""A safetensors file of random numbers in place of a checkpoint's.

    path = random_file(folder, {"model.norm.weight": (576,)}, "bf16")

The same shapes give the same file, which is written once.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pagemill.weights.errors import WeightsError
from pagemill.weights.new_file import new_file, safetensors_header

_TYPES = {"f32": "F32", "bf16": "BF16", "f16": "F16"}
_SEED = 0
# That of the initial weights of most models: logits of the order of 1.
_DEVIATION = 0.02
_TABLE = 2**20  # random numbers, which tensors repeat from different places


def random_file(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str, *, values: bool = True
) -> Path:
    """The path of a file in `folder` with these tensors in `dtype` ("f32", "bf16", "f16"): norms
    are 1, biases 0, bounds (`_min`, `_max`) infinite, others normally distributed. Without `values`
    these others are zeros, which take no disk space.

    Raises:
        WeightsError: the file cannot be written, for want of disk space for instance.
    """
    header, size = _header(shapes, dtype)
    digest = hashlib.sha256(b"%d" % _SEED + header).hexdigest()[:32]
    path = folder / f"{digest}{'' if values else '-empty'}.safetensors"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with new_file(path, header, size) as file:
            _write_values(file, shapes, dtype, values=values)
    except OSError as error:
        raise WeightsError(
            f"{path}: random weights of {size} bytes cannot be written ({error.strerror}): free"
            " disk space, or choose another folder with --cache-dir"
        ) from error
    return path


def _element_bytes(dtype: str) -> int:
    return 4 if dtype == "f32" else 2


def _header(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> tuple[bytes, int]:
    entries: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * _element_bytes(dtype)
        entries[name] = {
            "dtype": _TYPES[dtype],
            "shape": list(shape),
            "data_offsets": [begin, end],
        }
    return safetensors_header(entries), end


def _write_values(
    file: BinaryIO, shapes: Mapping[str, tuple[int, ...]], dtype: str, *, values: bool
) -> None:
    """Writes what is not 0."""
    random = np.random.default_rng(_SEED)
    table = _stored(random.standard_normal(_TABLE, dtype=np.float32) * _DEVIATION, dtype)
    for name, shape in shapes.items():
        count = math.prod(shape)
        size, constant = count * _element_bytes(dtype), _constant(name)
        if constant == 0 or (constant is None and not values):
            file.seek(size, os.SEEK_CUR)
        elif constant is not None:
            file.write(_stored(np.full(count, constant, np.float32), dtype).tobytes())
        else:
            turned = np.roll(table, int(random.integers(_TABLE))).tobytes()
            whole, rest = divmod(size, len(turned))
            for _ in range(whole):
                file.write(turned)
            file.write(turned[:rest])


def _constant(name: str) -> float | None:
    """What all elements of a tensor are; None: they are random."""
    if name.endswith("_min"):
        return -math.inf
    if name.endswith("_max"):
        return math.inf
    if "norm" in name and name.endswith("weight"):
        return 1.0
    return 0.0 if name.endswith("bias") else None


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """f32 values in `dtype`; bf16 as its bits, cut off."""
    if dtype == "f16":
        return values.astype("<f2")
    bits = values.astype("<f4")
    return bits if dtype == "f32" else (bits.view("<u4") >> 16).astype("<u2")
