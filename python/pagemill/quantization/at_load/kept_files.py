"""Files in the cache folder of matrices that are made when a model is loaded: one for each
checkpoint and format, which later starts find.

    path = file_of(source, at_load, values=True)
    found = read_kept(path)   # None: to be written
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from pagemill.config.load_quantization import LoadQuantization
from pagemill.tensor.dtypes import DTYPES, tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.safetensors import read_file
from pagemill.weights.source import QUANTIZATION, ModelSource

_LOGGER = logging.getLogger("pagemill.quantization")
_VERSION = 1  # of what is written; another one makes files anew


def file_of(source: ModelSource, at_load: LoadQuantization, *, values: bool) -> Path:
    """The file of this model and format, or, without `values`, the one of zeros if there is no
    other."""
    path = Path(at_load.folder, f"{_digest(source, at_load)}.safetensors")
    return path if path.exists() or values else path.with_suffix(".empty.safetensors")


def read_kept(path: Path) -> dict[str, TensorLocation] | None:
    """The tensors of the file; None if there is none, or it is damaged and has to be written
    again."""
    try:
        return read_file(path)
    except FileNotFoundError:
        return None
    except WeightsError as error:
        _LOGGER.warning("quantized weights are written again: %s", error)
        return None


def bytes_of(tensors: Iterable[TensorLocation]) -> int:
    """What tensors take in their files."""
    return sum(tensor_bytes(t.dtype, t.shape) for t in tensors if t.dtype in DTYPES)


def _digest(source: ModelSource, at_load: LoadQuantization) -> str:
    """What tells files apart: the format and the modules without it, the configuration of the
    checkpoint, and the places, sizes and times of its files."""
    files = sorted({tensor.file for tensor in source.tensors})
    stats = [os.stat(file) for file in files]
    known = [
        _VERSION,
        at_load.format,
        sorted(set(at_load.ignored)),
        *at_load.targets,
        *(["experts"] if at_load.only_experts else []),
        json.dumps({**source.config, QUANTIZATION: None}, sort_keys=True, default=str),
        [(f, s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)],
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
