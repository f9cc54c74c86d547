"""Matrices of integers in words of 32 bits that no kernel uses as they are stored: those of GPTQ
and AutoRound in 2 and 3 bits, and Quark's int4.

    matrices = packed_matrices(source)
    matrices[0].rows(0, 64)   # f32 [64, 576]

GPTQ's integers of a column [in] are one stream of bits, the first integer in the lowest ones, and
so are the zero points of a group [out]: of 3 bits, 32 lie in three words. Quark's words are AWQ's:
eight integers of a row [out], in the order 0, 4, 1, 5, 2, 6, 3, 7; int4 is in two's complement.
Sources: `pack` of `QuantLinear` in https://github.com/AutoGPTQ/AutoGPTQ and of GPTQModel, and
`Pack_4_bits` of the package amd-quark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagemill.quantization.packed import PackedScheme
from pagemill.quantization.table import source_method
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, read_bytes, read_some
from pagemill.weights.source import ModelSource

_WORD = 32  # bits
_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # places in a word of eight consecutive integers of AWQ
_SCALE_PARTS = ("scales", "weight_scale")

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


def packed_matrices(source: ModelSource) -> Sequence[WordMatrix]:
    """All of `source` if kernels cannot use each as it is stored; none otherwise.

    Raises:
        QuantizationError: the configuration is not supported.
        WeightsError: a tensor is missing or does not fit the others, or there are matrices in other
            formats beside these.
        OSError: a file cannot be read.
    """
    method = source_method(source)
    names = sorted(tensor.name.rpartition(".") for tensor in source.tensors)
    schemes = {module: method.scheme(module) for module, _, part in names if part in _SCALE_PARTS}
    packed = {
        module: scheme for module, scheme in schemes.items() if isinstance(scheme, PackedScheme)
    }
    if all(scheme.has_kernels for scheme in packed.values()):
        return ()
    for module, scheme in schemes.items():
        if module not in packed and scheme is not UNQUANTIZED:
            raise WeightsError(
                f"{source.path}: {module} is in {scheme.name}, others are packed integers without"
                " kernels of their own: matrices in both formats are not supported"
            )
    return [_open(source, module, scheme) for module, scheme in packed.items()]


@dataclass(frozen=True, slots=True)
class WordMatrix:
    """`tensor` has the integers; `parts` are the names of all tensors of the matrix."""

    module: str
    tensor: TensorLocation
    shape: tuple[int, int]
    parts: Sequence[str]
    _scheme: PackedScheme
    _scales: TensorLocation
    _zeros: TensorLocation | None
    _groups: npt.NDArray[np.int64]
    """That of each column."""

    @property
    def stored_bytes(self) -> int:
        return tensor_bytes(self.tensor.dtype, self.tensor.shape)

    def rows(self, begin: int, count: int) -> Floats:
        """Rows of the matrix, f32 [count, in].

        Raises:
            OSError: a file cannot be read.
        """
        bits, by_row = self._scheme.bits, self._scheme.layout == "awq"
        if by_row:
            q = self._of_rows(self.tensor, begin, count)
        else:
            words = _words(self.tensor)[:, begin : begin + count].T
            q = _unpacked(words, bits)[:, : self.shape[1]]
        zeros: Integers | int = 0 if self._scheme.signed else 1 << (bits - 1)
        if self._zeros is not None:
            zeros = self._of_rows(self._zeros, begin, count)
            if self._scheme.layout == "gptq":
                zeros = (zeros + 1) & ((1 << bits) - 1)
            zeros = zeros[:, self._groups]
        scales = read_some(self._scales, (slice(None), slice(begin, begin + count))).T
        return (q - zeros).astype(np.float32) * scales[:, self._groups]

    def _of_rows(self, tensor: TensorLocation, begin: int, count: int) -> Integers:
        """Integers of these rows, of words that hold those of several: [count, tensor's rows]."""
        bits = self._scheme.bits
        first, last = begin * bits // _WORD, -(-(begin + count) * bits // _WORD)
        if bits == 3:  # words begin within integers
            first, last = first // 3 * 3, -(-last // 3) * 3
        values = _unpacked(_words(tensor)[:, first:last], bits)
        if self._scheme.layout == "awq":
            eights = values.reshape(len(values), -1, len(_ORDER))
            values = eights[:, :, _ORDER].reshape(values.shape)
        if self._scheme.signed:
            half = 1 << (bits - 1)
            values = (values ^ half) - half
        skipped = begin - first * _WORD // bits
        return values[:, skipped : skipped + count].T


def _words(tensor: TensorLocation) -> npt.NDArray[np.uint32]:
    return read_bytes(tensor).view("<u4").reshape(tensor.shape)


def _unpacked(words: npt.NDArray[np.uint32], bits: int) -> Integers:
    """Words [n, words] -> the integers of each row of words, [n, words * 32 / bits]."""
    stream = np.ascontiguousarray(words).astype("<u4").view(np.uint8)
    each = np.unpackbits(stream, axis=1, bitorder="little")
    whole = each.shape[1] // bits * bits
    places = each[:, :whole].reshape(len(words), -1, bits)
    return (places @ (1 << np.arange(bits, dtype=np.uint8))).astype(np.int32)


def _open(source: ModelSource, module: str, scheme: PackedScheme) -> WordMatrix:
    values, scale, zero, index = (f"{module}.{name}" for name in scheme.part_names)
    tensor, bits = source.tensor(values), scheme.bits
    if tensor.dtype != "i32" or len(tensor.shape) != 2 or min(tensor.shape) < 1:
        raise WeightsError(
            f"{source.path}: {values} is {tensor.dtype} {list(tensor.shape)}; it must be words of"
            " i32 in two dimensions"
        )
    first, second = tensor.shape
    if scheme.layout == "awq":
        shape = (second * _WORD // bits, first)
    else:
        shape = (second, first * _WORD // bits)
    rows, columns = shape
    group = scheme.group or columns
    groups = np.arange(columns) // group
    if source.has(index):
        groups = _stored_groups(source, index, groups)
    count = -(-columns // group)
    scales = _located(source, scale, REAL_DTYPES, (count, rows))
    words = -(-rows * bits // _WORD)
    zeros = _located(source, zero, ("i32",), (count, words)) if source.has(zero) else None
    parts = [name for name in (values, scale, zero, index) if source.has(name)]
    return WordMatrix(module, tensor, shape, parts, scheme, scales, zeros, groups)


def _stored_groups(
    source: ModelSource, name: str, plain: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Groups of columns by an index, which older writers leave at 0."""
    location = _located(source, name, ("i32",), plain.shape)
    groups = read_bytes(location).view("<i4").astype(np.int64)
    if not groups.any():
        return plain
    if groups.min() < 0 or groups.max() > plain[-1]:
        raise WeightsError(f"{source.path}: {name} has an index of no group of {plain[-1] + 1}")
    return groups


def _located(
    source: ModelSource, name: str, dtypes: Sequence[str], shape: tuple[int, ...]
) -> TensorLocation:
    location = source.tensor(name)
    if location.dtype in dtypes and location.shape == shape:
        return location
    raise WeightsError(
        f"{source.path}: {name} is {location.dtype} {list(location.shape)}; it must be"
        f" {' or '.join(dtypes)} {list(shape)}"
    )
