"""f32 weights, by the names of their modules, of an ONNX file whose matrices are in 4 bits.

Of the graph these are read: MatMulNBits nodes, which are named after their modules; embeddings in 8
bits, `<name>_quantized` with one scale and zero point; and f32 initializers. Protocol Buffers are
read field by field, with the numbers of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

_DTYPES = {1: np.float32, 2: np.uint8}
_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_INPUT, _NAME, _OP = 1, 3, 4  # of a node
_DIMS, _DTYPE, _FLOATS, _INTEGERS, _TENSOR_NAME, _RAW = 1, 2, 4, 5, 8, 9
_EMBEDDING = "_quantized"

Message = Mapping[int, list[int | bytes]]
Array = npt.NDArray[np.float32]


def onnx_weights(path: Path) -> dict[str, Array]:
    """Weights of the file by names such as `bert.encoder.layer.0.output.dense.weight`."""
    graph = _message(_message(path.read_bytes())[_GRAPH][0])
    tensors = dict(map(_tensor, graph[_INITIALIZER]))
    weights = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.dtype == np.float32 and name.endswith((".weight", ".bias"))
    }
    for node in map(_message, graph[_NODE]):
        if _text(node[_OP][0]) == "MatMulNBits":
            module = _text(node[_NAME][0]).strip("/").rpartition("/")[0].replace("/", ".")
            values, scales = (tensors[_text(name)] for name in node[_INPUT][1:3])
            weights[f"{module}.weight"] = _from_4_bits(values, scales)
    for name in [name for name in tensors if name.endswith(_EMBEDDING)]:
        whole = name.removesuffix(_EMBEDDING)
        centred = tensors[name].astype(np.float32) - tensors[f"{whole}_zero_point"]
        weights[whole] = centred * tensors[f"{whole}_scale"]
    return weights


def _from_4_bits(values: npt.NDArray[np.uint8], scales: Array) -> Array:
    """values [out, blocks, bytes], the lower half of a byte first, scales [out, blocks] -> [out,
    in]; 8 stands for zero."""
    halves = np.stack([values & 15, values >> 4], axis=-1).reshape(*values.shape[:2], -1)
    blocks = (halves.astype(np.float32) - 8) * scales[..., None]
    return blocks.reshape(len(values), -1)


def _tensor(field: int | bytes) -> tuple[str, npt.NDArray[np.generic]]:
    """Name and values of an initializer of a type that is used; others are empty."""
    message = _message(field)
    dtype = _DTYPES.get(_number(message[_DTYPE][0]))
    name, dims = _text(message[_TENSOR_NAME][0]), [_number(dim) for dim in message.get(_DIMS, [])]
    if dtype is None:
        return name, np.empty(0)
    data = (message.get(_RAW) or message.get(_FLOATS) or [b""])[0]
    assert isinstance(data, bytes)
    if not data:  # small integers, one by one or packed
        packed = message.get(_INTEGERS, [])
        numbers = [
            n for part in packed for n in (_varints(part) if isinstance(part, bytes) else [part])
        ]
        return name, np.array(numbers, dtype).reshape(dims)
    return name, np.frombuffer(data, dtype).reshape(dims)


def _message(field: int | bytes) -> Message:
    """The values of a message by their fields' numbers."""
    assert isinstance(field, bytes)
    values: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(field):
        key, at = _varint(field, at)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(field, at)
        else:
            size, at = _varint(field, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = field[at : at + size], at + size
        values.setdefault(key >> 3, []).append(value)
    return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _text(field: int | bytes) -> str:
    assert isinstance(field, bytes)
    return field.decode()


def _number(field: int | bytes) -> int:
    assert isinstance(field, int)
    return field
