"""Reader of files that `torch.save` writes, without torch: where the tensors of a state dictionary
lie.

Format: a zip archive, uncompressed, of `<name>/data.pkl`, a pickle of the dictionary, and
`<name>/data/<key>`, the numbers of each storage. The pickle is interpreted here, by the few opcodes
that dictionaries of tensors take; nothing that it names is imported or called, and any other opcode
is refused. Tensors are used where they lie in the archive.
"""

from __future__ import annotations

import math
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation

_ADVICE = (
    "; save it as safetensors, in Python: safetensors.torch.save_file(torch.load(FILE,"
    " weights_only=True), NEW_FILE)"
)
_MAX_PICKLE_BYTES = 2**25  # as of JSON headers: 10^5 tensors take 20 MB
_MAX_TENSOR_PICKLE_BYTES = 4096  # one tensor takes about 200
_MAX_ENTRIES = 2**20
_MAX_DIMENSIONS = 8
_LOCAL_HEADER_BYTES = 30
# What comes of archives that are damaged or compressed.
_DAMAGE = (
    *(zipfile.BadZipFile, struct.error, EOFError),
    *(ValueError, OverflowError, NotImplementedError, RuntimeError),
)
_DTYPES: Mapping[str, tuple[str, int]] = {
    "BFloat16Storage": ("bf16", 2),
    "BoolStorage": ("bool", 1),
    "ByteStorage": ("u8", 1),
    "CharStorage": ("i8", 1),
    "DoubleStorage": ("f64", 8),
    "FloatStorage": ("f32", 4),
    "HalfStorage": ("f16", 2),
    "IntStorage": ("i32", 4),
    "LongStorage": ("i64", 8),
    "ShortStorage": ("i16", 2),
}


def read_torch_file(path: Path) -> dict[str, TensorLocation]:
    """The tensors of the dictionary in `path`; names of types are those of `read_file` of
    safetensors.

    Raises:
        WeightsError: it is no such file, or has anything besides tensors in rows one after the
            other.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        archive = _Archive.read(file, str(path), _MAX_PICKLE_BYTES)
        return {name: archive.located(name, tensor) for name, tensor in archive.tensors().items()}


def read_torch_tensor(file: BinaryIO, path: str) -> TensorLocation:
    """The one tensor that was saved without a dictionary; `path` is what errors call `file`.

    Raises:
        WeightsError: as `read_torch_file`, or it is anything but a tensor.
    """
    archive = _Archive.read(file, path, _MAX_TENSOR_PICKLE_BYTES)
    if not isinstance(archive.value, _Tensor):
        raise WeightsError(f"{path}: no tensor, but another value of torch.save")
    return archive.located("the tensor", archive.value)


@dataclass(frozen=True, slots=True)
class _Global:
    """What the pickle names."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    """`offset` and `strides` count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Archive:
    """An archive in `file`, which errors call `path`, and the `value` of its pickle."""

    file: BinaryIO
    path: str
    entries: Mapping[str, zipfile.ZipInfo]
    folder: str
    value: object

    @classmethod
    def read(cls, file: BinaryIO, path: str, max_pickle_bytes: int) -> _Archive:
        """Raises WeightsError if it is none, or has anything besides containers of tensors."""
        try:
            with zipfile.ZipFile(file) as archive:
                entries = {entry.filename: entry for entry in archive.infolist()}
            pickles = [name for name in entries if name.endswith("/data.pkl")]
            if len(pickles) != 1 or len(entries) > _MAX_ENTRIES:
                raise WeightsError(f"{path}: no file of torch.save{_ADVICE}")
            if entries[pickles[0]].file_size > max_pickle_bytes:
                raise WeightsError(f"{path}: more than {max_pickle_bytes} bytes of pickle")
            data = _stored(file, entries[pickles[0]])
        except WeightsError:
            raise
        except _DAMAGE as error:
            message = f"{path}: no zip archive of torch.save: {error!s:.100}{_ADVICE}"
            raise WeightsError(message) from error
        try:
            value = _run(data)
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            message = f"{path}: no dictionary of tensors: {error!s:.100}{_ADVICE}"
            raise WeightsError(message) from error
        return cls(file, path, entries, pickles[0].removesuffix("data.pkl"), value)

    def tensors(self) -> dict[str, _Tensor]:
        """Those of a dictionary.

        Raises:
            WeightsError: it is none, or has other values.
        """
        if not isinstance(self.value, dict):
            raise WeightsError(f"{self.path}: no dictionary of tensors{_ADVICE}")
        found: dict[str, _Tensor] = {}
        for name, tensor in cast("dict[Any, Any]", self.value).items():
            if not isinstance(name, str) or not isinstance(tensor, _Tensor):
                raise WeightsError(f"{self.path}: {shown(name)} is no tensor{_ADVICE}")
            found[name] = tensor
        return found

    def located(self, name: str, tensor: _Tensor) -> TensorLocation:
        """Where the numbers of `tensor` are.

        Raises:
            WeightsError: they are not in the archive, or not in rows one after the other.
        """
        entry = self.entries.get(f"{self.folder}data/{tensor.storage.key}")
        if entry is None:
            raise WeightsError(f"{self.path}: the numbers of {shown(name)} are missing")
        try:
            offset = _data_offset(self.file, entry)
        except _DAMAGE as error:
            message = f"{self.path}: the numbers of {shown(name)} cannot be read: {error!s:.100}"
            raise WeightsError(message) from error
        return _located(self.path, name, tensor, entry, offset)


def _run(data: bytes) -> object:
    """Interprets a pickle.

    Raises:
        ValueError, IndexError, KeyError, TypeError, AttributeError: it has anything besides
            containers, numbers, texts and tensors.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def marked() -> list[Any]:
        begin = marks.pop()
        values = stack[begin:]
        del stack[begin:]
        return values

    for opcode, argument, _ in pickletools.genops(data):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode.name])
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                made: dict[str, Any] = {"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}
                stack.append(made[opcode.name])
            case "TUPLE":
                stack.append(tuple(marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode.name[-1])
                values = [stack.pop() for _ in range(size)]
                stack.append(tuple(reversed(values)))
            case "GLOBAL":
                stack.append(_Global(str(argument).replace(" ", ".")))
            case "BINPUT" | "LONG_BINPUT":
                memo[int(cast(Any, argument))] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[int(cast(Any, argument))])
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "REDUCE":
                arguments, called = stack.pop(), stack.pop()
                stack.append(_called(called, arguments))
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                stack[-1][_key(key)] = value
            case "SETITEMS":
                values = marked()
                for key, value in zip(values[::2], values[1::2], strict=True):
                    stack[-1][_key(key)] = value
            case "APPEND" | "APPENDS":
                values = marked() if opcode.name == "APPENDS" else [stack.pop()]
                stack[-1].extend(values)
            case "BUILD":  # attributes of the dictionary, such as its versions
                stack.pop()
            case _:
                raise ValueError(f"the opcode {opcode.name}")
    raise ValueError("the pickle does not end")


def _key(key: object) -> str | int:
    if not isinstance(key, str | int):
        raise TypeError("a key is neither a text nor a number")
    return key


def _storage(reference: object) -> _Storage:
    """The storage of ("storage", type, key, device, elements)."""
    match reference:
        case ("storage", _Global(name), str(key), str(), int()):
            return _Storage(name.rpartition(".")[2], key)
        case _:
            raise ValueError("a reference to no storage")


def _called(called: object, arguments: tuple[Any, ...]) -> object:
    """What torch would make of these arguments."""
    match called:
        case _Global("collections.OrderedDict") if not arguments:
            return {}
        case _Global("torch._utils._rebuild_tensor_v2"):
            storage, offset, shape, strides, *_ = arguments
            if isinstance(storage, _Storage) and isinstance(offset, int):
                if len(shape) != len(strides):
                    raise ValueError("strides of other dimensions than the shape's")
                if len(shape) > _MAX_DIMENSIONS:
                    raise ValueError(f"{len(shape)} dimensions; at most {_MAX_DIMENSIONS} are read")
                return _Tensor(storage, offset, _numbers(shape), _numbers(strides))
        case _Global("torch._utils._rebuild_parameter"):
            if isinstance(arguments[0], _Tensor):
                return arguments[0]
        case _:
            pass
    name = called.name if isinstance(called, _Global) else "no function"
    raise ValueError(f"a call of {name:.60}")


def _numbers(values: tuple[Any, ...]) -> tuple[int, ...]:
    if not all(type(n) is int and 0 <= n < 2**63 for n in values):
        raise ValueError("a shape of no numbers")
    return tuple(values)


def _stored(file: BinaryIO, entry: zipfile.ZipInfo) -> bytes:
    """The content of `entry`; raises as `_data_offset`."""
    file.seek(_data_offset(file, entry))
    return file.read(entry.file_size)


def _data_offset(file: BinaryIO, entry: zipfile.ZipInfo) -> int:
    """Where the bytes of `entry` begin: behind its local header, whose extra field may be another
    than that of the directory.

    Raises:
        ValueError, OverflowError: it is compressed, or outside the file.
    """
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise ValueError(f"{entry.filename[:60]!r} is compressed")
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return entry.header_offset + _LOCAL_HEADER_BYTES + name + extra


def _located(
    path: str, name: str, tensor: _Tensor, entry: zipfile.ZipInfo, offset: int
) -> TensorLocation:
    if tensor.storage.kind not in _DTYPES:
        known = ", ".join(sorted(_DTYPES))
        raise WeightsError(
            f"{path}: {shown(name)} is of {shown(tensor.storage.kind)}; known: {known}"
        )
    dtype, element_bytes = _DTYPES[tensor.storage.kind]
    end = (tensor.offset + math.prod(tensor.shape)) * element_bytes
    if tensor.offset < 0 or end > entry.file_size:
        raise WeightsError(f"{path}: {shown(name)} ends behind its storage (cut short?)")
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size > 1 and stride != expected:
            message = f"{path}: the rows of {shown(name)} do not follow each other{_ADVICE}"
            raise WeightsError(message)
        expected *= size
    begin = offset + tensor.offset * element_bytes
    return TensorLocation(name, dtype, tensor.shape, path, begin)
