"""A model whose matrices are rounded when it is loaded: the tensors of a file in the cache folder
take the place of the checkpoint's.

    source = quantize(source, LoadQuantization("fp8", folder), matrices, sys.stderr)

The same checkpoint and format give the same file, which is written once. `convert` does likewise
with matrices of 4 bits that no kernel multiplies as they are stored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TextIO

from pagemill.config.load_quantization import LoadQuantization
from pagemill.config.quantities import format_bytes
from pagemill.ops.dtypes import DTYPES, tensor_bytes
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.four_bits import four_bit_matrices
from pagemill.quantization.at_load.hqq import hqq_matrices
from pagemill.quantization.at_load.listed_modules import ListedModules
from pagemill.quantization.at_load.module_formats import ModuleFormats
from pagemill.quantization.at_load.rounded_file import write_rounded
from pagemill.quantization.at_load.rounding import Rounding
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES
from pagemill.weights.safetensors import read_file
from pagemill.weights.source import QUANTIZATION, ModelSource
from pagemill.weights.stored_matrix import StoredMatrix, module_of

_LOGGER = logging.getLogger("pagemill.quantization")
_CONVERTED = "int8"
_MATRICES = {"bitsandbytes": four_bit_matrices, "hqq": hqq_matrices}
_VERSION = 1  # of what is written; another one makes files anew


def quantize(
    source: ModelSource,
    at_load: LoadQuantization,
    matrices: Callable[[], Sequence[StoredMatrix]],
    progress: TextIO,
    *,
    values: bool = True,
) -> ModelSource:
    """`source`, a directory's, with matrices in formats of `FORMATS`.

    Args:
        source: the model, not quantized.
        at_load: the format, the modules of another format and those that stay as they are, and
            where to find or write the file.
        matrices: finds those of linear layers among the tensors of `source`, and stacks of them;
            called if there is no file yet.
        progress: gets a progress bar if it is a terminal.
        values: if false, a new file has zeros, which take no disk space: what is planned with it
            is never run.

    Raises:
        WeightsError: there is no matrix that can have the format, or the file cannot be written.
        PatternError: a pattern of modules is not supported.
    """
    ignored, formats = ListedModules(at_load.ignored), _formats(at_load)
    _report(source, [*_unmatched(ignored, source), *_unmatched(formats, source)])
    path = _path(source, at_load, values=values)
    found = _read(path)
    if found is None:
        wanted = [matrix for matrix in matrices() if matrix.module not in ignored]
        chosen = _fitting(wanted, formats)
        if not chosen:
            left = ", without those of --quantization-config" if at_load.ignored else ""
            raise WeightsError(
                f"{source.path}: no matrix can be quantized to {at_load.format}{left}"
            )
        divided = [(by, each) for by, matrix in chosen for each in matrix.divided()]
        write_rounded(path, divided, progress, values=values)
        found = read_file(path)
    modules = {name.rpartition(".")[0] for name in found}
    before, kept = _divide(source, modules)
    named = _named(before, formats)
    _LOGGER.info(
        "%d matrices are quantized to %s: %s become %s; %s of weights stay as they are",
        len(before),
        ", ".join(sorted({at_load.format, *named.values()})),
        *(format_bytes(_bytes_of(tensors)) for tensors in (before, found.values(), kept)),
    )
    tensors = {tensor.name: tensor for tensor in kept} | found
    return source.with_tensors(tensors, {QUANTIZATION: formats.section(named)})


def convert(
    source: ModelSource, at_load: LoadQuantization, progress: TextIO, *, values: bool = True
) -> ModelSource:
    """`source` with those of its matrices in 8.5 bits that are in 4 bits of bitsandbytes, or in
    HQQ's format; itself if it has none.

    Args:
        source: the model.
        at_load: the method, in place of a format, and where to find or write the file.
        progress: see `quantize`.
        values: see `quantize`.

    Raises:
        WeightsError: a matrix is damaged or has rows of another length than multiples of 32, or the
            file cannot be written.
        OSError: a file cannot be read.
    """
    rounding, matrices = FORMATS[_CONVERTED], _MATRICES[at_load.format](source)
    if not matrices:
        return source
    for matrix in matrices:
        if why := rounding.refusal(matrix.shape):
            raise WeightsError(f"{source.path}: {matrix.tensor.name} cannot be converted: {why}")
    path = _path(source, at_load, values=values)
    found = _read(path)
    if found is None:
        pairs = [(rounding, matrix) for matrix in matrices]
        write_rounded(path, pairs, progress, values=values)
        found = read_file(path)
    parts = {name for matrix in matrices for name in matrix.parts}
    before = [tensor for tensor in source.tensors if tensor.name in parts]
    kept = {tensor.name: tensor for tensor in source.tensors if tensor.name not in parts}
    _LOGGER.info(
        "%d matrices of %s are converted to %s: %s become %s",
        len(matrices),
        at_load.format,
        _CONVERTED,
        *(format_bytes(_bytes_of(tensors)) for tensors in (before, found.values())),
    )
    return source.with_tensors(kept | found, {QUANTIZATION: rounding.section})


def _path(source: ModelSource, at_load: LoadQuantization, *, values: bool) -> Path:
    """The file of this model and format, or, without `values`, the one of zeros if there is no
    other."""
    path = Path(at_load.folder, f"{_digest(source, at_load)}.safetensors")
    return path if path.exists() or values else path.with_suffix(".empty.safetensors")


def _formats(at_load: LoadQuantization) -> ModuleFormats:
    return ModuleFormats(at_load.format, at_load.targets)


def _unmatched(listed: ListedModules | ModuleFormats, source: ModelSource) -> list[str]:
    return listed.unmatched([module_of(tensor) for tensor in source.tensors])


def _report(source: ModelSource, entries: Iterable[str]) -> None:
    """Reports entries that list no module of the model."""
    for entry in entries:
        _LOGGER.warning(
            "--quantization-config: %r lists no module of %s; entries are names, whole components"
            " of names, or patterns that begin with re:",
            entry,
            source.path,
        )


def _named(matrices: Iterable[TensorLocation], formats: ModuleFormats) -> Mapping[str, str]:
    """The format of each module. That of a stack stands for its matrices, whose names begin with
    it."""
    modules = map(module_of, matrices)
    return {module: formats.of(module) for module in modules}


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


def _fitting(
    matrices: Iterable[StoredMatrix], formats: ModuleFormats
) -> list[tuple[Rounding, StoredMatrix]]:
    """Those that can have their format, with it; others are reported."""
    fitting: list[tuple[Rounding, StoredMatrix]] = []
    others: dict[str, list[str]] = {}
    for matrix in matrices:
        rounding = FORMATS[formats.of(matrix.module)]
        real = matrix.tensor.dtype in REAL_DTYPES
        why = rounding.refusal(matrix.shape) if real else "they are packed"
        if why:
            others.setdefault(why, []).append(matrix.tensor.name)
        else:
            fitting.append((rounding, matrix))
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
        *at_load.targets,
        json.dumps({**source.config, QUANTIZATION: None}, sort_keys=True, default=str),
        [(f, s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)],
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
