"""A model whose matrices are rounded when it is loaded: the tensors of a file in the cache folder
take the place of the checkpoint's.

    source = quantize(source, LoadQuantization("fp8", folder), matrices, sys.stderr)

The same checkpoint and format give the same file, which is written once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import TextIO

from pagemill.config.load_quantization import LoadQuantization
from pagemill.config.quantities import format_bytes
from pagemill.ops.dtypes import DTYPES, tensor_bytes
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.ignored_modules import IgnoredModules
from pagemill.quantization.at_load.rounded_file import write_rounded
from pagemill.quantization.at_load.rounding import Rounding
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES
from pagemill.weights.safetensors import read_file
from pagemill.weights.source import QUANTIZATION, ModelSource
from pagemill.weights.stored_matrix import StoredMatrix, module_of

_LOGGER = logging.getLogger("pagemill.quantization")
_VERSION = 1  # of what is written; another one makes files anew


def quantize(
    source: ModelSource,
    at_load: LoadQuantization,
    matrices: Callable[[], Sequence[StoredMatrix]],
    progress: TextIO,
    *,
    values: bool = True,
) -> ModelSource:
    """`source`, a directory's, with matrices in a format of `FORMATS`.

    Args:
        source: the model, not quantized.
        at_load: the format, the modules that stay as they are, and where to find or write the
            file.
        matrices: finds those of linear layers among the tensors of `source`, and stacks of them;
            called if there is no file yet.
        progress: gets a progress bar if it is a terminal.
        values: if false, a new file has zeros, which take no disk space: what is planned with it
            is never run.

    Raises:
        WeightsError: there is no matrix that can have the format, or the file cannot be written.
        PatternError: a pattern of modules that stay as they are is not supported.
    """
    rounding, ignored = FORMATS[at_load.format], _ignored(source, at_load)
    path = Path(at_load.folder, f"{_digest(source, at_load)}.safetensors")
    if not path.exists() and not values:
        path = path.with_suffix(".empty.safetensors")
    found = _read(path)
    if found is None:
        wanted = [matrix for matrix in matrices() if matrix.module not in ignored]
        chosen = _fitting(wanted, rounding)
        if not chosen:
            left = ", without those of --quantization-config" if at_load.ignored else ""
            raise WeightsError(
                f"{source.path}: no matrix can be quantized to {at_load.format}{left}"
            )
        divided = [each for matrix in chosen for each in matrix.divided()]
        write_rounded(path, rounding, divided, progress, values=values)
        found = read_file(path)
    modules = {name.rpartition(".")[0] for name in found}
    before, kept = _divide(source, modules)
    _LOGGER.info(
        "%d matrices are quantized to %s: %s become %s; %s of weights stay as they are",
        len(before),
        at_load.format,
        *(format_bytes(_bytes_of(tensors)) for tensors in (before, found.values(), kept)),
    )
    tensors = {tensor.name: tensor for tensor in kept} | found
    return source.with_tensors(tensors, {QUANTIZATION: rounding.section})


def _ignored(source: ModelSource, at_load: LoadQuantization) -> IgnoredModules:
    """The modules that stay as they are; entries that list none of the model are reported."""
    ignored = IgnoredModules(at_load.ignored)
    for entry in ignored.unmatched([module_of(tensor) for tensor in source.tensors]):
        _LOGGER.warning(
            "--quantization-config: %r lists no module of the model; entries are names, whole"
            " components of names, or patterns that begin with re:",
            entry,
        )
    return ignored


def _read(path: Path) -> dict[str, TensorLocation] | None:
    """The tensors of the file; None if there is none, or it is damaged and has to be written
    again."""
    try:
        return read_file(path)
    except FileNotFoundError:
        return None
    except WeightsError as error:
        _LOGGER.warning("quantized weights are written again: %s", error)
        return None


def _fitting(matrices: Iterable[StoredMatrix], rounding: Rounding) -> list[StoredMatrix]:
    """Those that can have the format; others are reported."""
    fitting: list[StoredMatrix] = []
    others: dict[str, list[str]] = {}
    for matrix in matrices:
        real = matrix.tensor.dtype in REAL_DTYPES
        why = rounding.refusal(matrix.shape) if real else "they are packed"
        if why:
            others.setdefault(why, []).append(matrix.tensor.name)
        else:
            fitting.append(matrix)
    for why, names in others.items():
        _LOGGER.warning("%d matrices stay as they are, as %s: %s", len(names), names[0], why)
    return fitting


def _divide(
    source: ModelSource, modules: Set[str]
) -> tuple[list[TensorLocation], list[TensorLocation]]:
    """The weights of `modules`, and all other tensors."""
    of_modules: list[TensorLocation] = []
    others: list[TensorLocation] = []
    for tensor in source.tensors:
        stack = ".0" if len(tensor.shape) == 3 else ""
        quantized = module_of(tensor) + stack in modules
        (of_modules if quantized else others).append(tensor)
    return of_modules, others


def _bytes_of(tensors: Iterable[TensorLocation]) -> int:
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
        json.dumps({**source.config, QUANTIZATION: None}, sort_keys=True, default=str),
        [(f, s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)],
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
