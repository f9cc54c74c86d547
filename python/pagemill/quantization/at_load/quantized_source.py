"""A model whose matrices are rounded when it is loaded: the tensors of a file in the cache folder
take the place of the checkpoint's.

    source = quantize(source, LoadQuantization("fp8", folder), matrices, sys.stderr)

The same checkpoint and format give the same file, which is written once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TextIO

from pagemill.config.load_quantization import LoadQuantization
from pagemill.config.quantities import format_bytes
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.kept_files import bytes_of, file_of, read_kept
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
    path = file_of(source, at_load, values=values)
    found = read_kept(path)
    if found is None:
        wanted = [matrix for matrix in matrices() if matrix.module not in ignored]
        chosen = _fitting(wanted, formats)
        if not chosen:
            of = " of experts" if at_load.only_experts else ""
            left = ", without those of --quantization-config" if at_load.ignored else ""
            raise WeightsError(
                f"{source.path}: no matrix{of} can be quantized to {at_load.format}{left}"
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
        *(format_bytes(bytes_of(tensors)) for tensors in (before, found.values(), kept)),
    )
    tensors = {tensor.name: tensor for tensor in kept} | found
    return source.with_tensors(tensors, {QUANTIZATION: formats.section(named)})


def write_sent(
    path: Path, at_load: LoadQuantization, matrices: Iterable[StoredMatrix], progress: TextIO
) -> None:
    """Writes matrices that `quantize` has rounded in an older version, in the same formats, to a
    new file.

    Raises:
        WeightsError: see `write_rounded`.
        PatternError: a pattern of modules is not supported.
    """
    chosen = _fitting(matrices, _formats(at_load))
    divided = [(by, each) for by, matrix in chosen for each in matrix.divided()]
    write_rounded(path, divided, progress)


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
