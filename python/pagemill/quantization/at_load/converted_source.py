"""A model whose matrices no kernel uses as they are stored: the tensors of a file in the cache
folder take the place of the checkpoint's.

    source = convert(source, LoadQuantization("hqq", folder), sys.stderr)

The same checkpoint gives the same file, which is written once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TextIO

from pagemill.config.load_quantization import LoadQuantization
from pagemill.config.quantities import format_bytes
from pagemill.quantization.at_load.float_scales import ByteScales, FloatScales
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.four_bits import four_bit_matrices
from pagemill.quantization.at_load.hqq import hqq_matrices
from pagemill.quantization.at_load.kept_files import bytes_of, file_of, read_kept
from pagemill.quantization.at_load.packed_words import packed_matrices
from pagemill.quantization.at_load.rounded_file import write_rounded
from pagemill.quantization.at_load.rounding import RowSource, RowWriter
from pagemill.quantization.at_load.ternary import ternary_matrices
from pagemill.quantization.at_load.torchao_matrices import torchao_matrices
from pagemill.quantization.scaled import group_scales
from pagemill.quantization.table import GROUP_SCALES
from pagemill.weights.errors import WeightsError
from pagemill.weights.safetensors import read_file
from pagemill.weights.source import QUANTIZATION, ModelSource

_LOGGER = logging.getLogger("pagemill.quantization")
_CONVERTED = "int8"
# BitNet's products are of activations in 8 bits, too.
_CONVERTED_OTHERWISE = {"bitnet": "int8_w8a8"}
_MATRICES = {
    "bitnet": ternary_matrices,
    "bitsandbytes": four_bit_matrices,
    "hqq": hqq_matrices,
    "torchao": torchao_matrices,
    **dict.fromkeys(("auto-round", "gptq", "inc", "intel/auto-round", "quark"), packed_matrices),
}


def convert(
    source: ModelSource, at_load: LoadQuantization, progress: TextIO, *, values: bool = True
) -> ModelSource:
    """`source` with those of its matrices in 8.5 bits that are in 4 bits of bitsandbytes, or in
    HQQ's format or torchao's, or packed in 2 or 3 bits or as int4; in 8 bits if they are BitNet's;
    or with scales in f32 that are bytes (`GROUP_SCALES`); itself if it has none that need it.

    Args:
        source: the model.
        at_load: the method or `GROUP_SCALES`, in place of a format, and where to find or write the
            file.
        progress: gets a progress bar if it is a terminal.
        values: if false, a new file has zeros, which take no disk space: what is planned with it
            is never run.

    Raises:
        WeightsError: a matrix is damaged or has rows of another length than multiples of 32, or the
            file cannot be written.
        OSError: a file cannot be read.
    """
    pairs, changes = _conversion(source, at_load.format)
    if not pairs:
        return source
    path = file_of(source, at_load, values=values)
    found = read_kept(path)
    if found is None:
        write_rounded(path, pairs, progress, values=values)
        found = read_file(path)
    parts = {name for _, matrix in pairs for name in matrix.parts}
    before = [tensor for tensor in source.tensors if tensor.name in parts]
    kept = {tensor.name: tensor for tensor in source.tensors if tensor.name not in parts}
    matrices = f"{len(pairs)} matrices"
    of_scales = at_load.format == GROUP_SCALES
    _LOGGER.info(
        "%s are converted: %s become %s",
        f"scales of {matrices}" if of_scales else f"{matrices} of {at_load.format}",
        *(format_bytes(bytes_of(tensors)) for tensors in (before, found.values())),
    )
    return source.with_tensors(kept | found, changes)


def _conversion(
    source: ModelSource, name: str
) -> tuple[Sequence[tuple[RowWriter, _Stored]], Mapping[str, Any]]:
    """What is converted of `source`, to what, and the changes of its configuration."""
    if name == GROUP_SCALES:
        scales = map(ByteScales, group_scales(source))
        return [(FloatScales(each.tensor.name.rpartition(".")[2]), each) for each in scales], {}
    rounding = FORMATS[_CONVERTED_OTHERWISE.get(name, _CONVERTED)]
    matrices = _MATRICES[name](source)
    for matrix in matrices:
        if why := rounding.refusal(matrix.shape):
            raise WeightsError(f"{source.path}: {matrix.tensor.name} cannot be converted: {why}")
    return [(rounding, matrix) for matrix in matrices], {QUANTIZATION: rounding.section}


class _Stored(RowSource, Protocol):
    """A matrix of a checkpoint, of tensors that are called `parts`."""

    @property
    def parts(self) -> Sequence[str]: ...
