"""Tracing: a model called on symbolic tensors leaves a `Program` behind.

    trace = Trace()
    ids = trace.input("token_ids", "i32", ("tokens",))
    table = trace.weight("embed", "q8_0", (49152, 576), file=trace.file(path), offset=123456)
    trace.output("logits", ops.linear(ops.embedding(ids, table), table))
    text = to_text(trace.program)

The ops are functions of `pagemill.ops`; each checks shapes when it is called, so that an error in a
model is reported at the line that causes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pagemill.ops.program import (
    CONSTANTS_PATH,
    DIMS,
    KV,
    AdapterEntry,
    CacheEntry,
    Dim,
    Format,
    GroupEntry,
    OpEntry,
    OutputEntry,
    PartNames,
    Program,
    QuantizedEntry,
    Shape,
    StackEntry,
    ValueEntry,
    WeightEntry,
)
from pagemill.tensor.dtypes import tensor_bytes

_CONSTANT_ALIGNMENT = 64  # bytes; a cache line, so that kernels may use aligned loads


class ShapeError(ValueError):
    """An op was called with operands that violate its contract."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A symbolic tensor: a weight, a step input or the result of an op. A quantized weight has a
    format, and its dtype is that of its values."""

    name: str
    dtype: str
    shape: Shape
    trace: Trace = field(repr=False, compare=False)
    format: Format | None = None

    @property
    def rows(self) -> Dim:
        """Dimension 0."""
        return self.shape[0]

    @property
    def width(self) -> int:
        """Elements of a row: the product of all dimensions but the first."""
        return row_width(self.shape)


@dataclass(frozen=True, slots=True)
class Cache:
    """One layer's cache, an operand of the ops that write and read it. `dims` are those of
    `CacheEntry`: kv_heads and head_dim of layout "kv"; `window` is how many tokens a query sees (0
    = all)."""

    name: str
    layout: str
    dims: tuple[int, ...]
    window: int
    trace: Trace = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AdapterTable:
    """The adapters of a layer, whose weight is `shape` [out, in] or [experts, out, in]; an operand
    of `apply_adapter`."""

    name: str
    shape: tuple[int, ...]
    trace: Trace = field(repr=False, compare=False)


Operand = Tensor | Cache | AdapterTable | None


class Parts(NamedTuple):
    """The parts of a quantized weight; None if absent. `factor` is that of nvfp4."""

    values: Tensor | None
    scales: Tensor | None
    zeros: Tensor | None = None
    groups: Tensor | None = None
    factor: Tensor | None = None


def row_width(shape: Shape) -> int:
    """The product of all dimensions but the first."""
    width = 1
    for dim in shape[1:]:
        if not isinstance(dim, int):
            raise ShapeError(
                f"{format_shape(shape)}: a dimension of the step may only be the first"
            )
        width *= dim
    return width


def format_shape(shape: Shape) -> str:
    """`[tokens, 9, 64]`."""
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def describe(tensor: Tensor) -> str:
    """`w0 is f32 [3, 4]`, with the format of a quantized weight."""
    form = "" if tensor.format is None else f" of {tensor.format}"
    return f"{tensor.name} is {tensor.dtype} {format_shape(tensor.shape)}{form}"


class Trace:
    """Collects one program. Not thread safe; lives as long as the tracing.

    If it `keeps_context`, the KV of layers with windows stays as long as that of layers without,
    for a program that may lag behind.
    """

    def __init__(self, *, keeps_context: bool = False) -> None:
        self.program = Program()
        self._keeps_context = keeps_context
        self._windows: dict[str, int] = {}  # of caches
        self.layer: int | None = None  # that is being traced (layers/stack.py)
        self._weights: dict[str, Tensor] = {}
        self._quantized: dict[str, QuantizedEntry] = {}

    def file(self, path: str) -> int:
        """The number of the weight file `path`, declared at its first use."""
        if path not in self.program.files:
            if "\n" in path or path != path.strip() or not path:
                raise ValueError(f"the path {path!r} cannot stand in program text")
            self.program.files.append(path)
        return self.program.files.index(path)

    def weight(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        *,
        file: int,
        offset: int,
        row_stride: int = 0,
        column_stride: int = 0,
    ) -> Tensor:
        """Declare a tensor in a file, row-major, `offset` bytes from its start; `row_stride` bytes
        from row to row, 0 if rows are contiguous. With a `column_stride`, in bytes, it is a matrix
        that the file has transposed."""
        tensor_bytes(dtype, shape)
        entry = WeightEntry(name, dtype, tuple(shape), file, offset, row_stride, column_stride)
        self.program.weights.append(entry)
        return self._weight(Tensor(name, dtype, entry.shape, self))

    def quantized(
        self, name: str, dtype: str, shape: Sequence[int], form: Format, parts: Parts
    ) -> Tensor:
        """Declare a weight of quantized values, which has these `parts`."""
        tensor_bytes(dtype, shape)
        names = PartNames(*(None if part is None else part.name for part in parts))
        entry = QuantizedEntry(name, dtype, tuple(shape), form, names)
        self.program.quantized.append(entry)
        self._quantized[name] = entry
        return Tensor(name, dtype, entry.shape, self, form)

    def parts(self, tensor: Tensor) -> Parts:
        """The parts of a quantized weight."""
        names = self._quantized[tensor.name].parts
        found = (None if name is None else self._weights[name] for name in names)
        return Parts(*found)

    def stack(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        """Declare a weight [len(parts), ...] that is made of `parts`, weights of one dtype and
        shape; quantized ones of one format are joined part by part."""
        first = parts[0]
        for part in parts:
            if (part.dtype, part.shape, part.format) != (first.dtype, first.shape, first.format):
                raise ShapeError(f"stack {name}: {describe(first)}, {describe(part)}")
        shape = (len(parts), *(int(dim) for dim in first.shape))
        if first.format is not None:
            return self.quantized(
                name, first.dtype, shape, first.format, self._stacked_parts(name, parts)
            )
        entry = StackEntry(name, first.dtype, shape, tuple(part.name for part in parts))
        self.program.stacks.append(entry)
        return self._weight(Tensor(name, first.dtype, shape, self))

    def _stacked_parts(self, name: str, matrices: Sequence[Tensor]) -> Parts:
        stacked: list[Tensor | None] = []
        kinds = zip(Parts._fields, *(self.parts(matrix) for matrix in matrices), strict=True)
        for kind, *of_kind in kinds:
            found = [part for part in of_kind if part is not None]
            if found and len(found) != len(matrices):
                lacking = matrices[of_kind.index(None)].name
                raise ShapeError(f"stack {name}: {lacking} has no {kind}, others have")
            stacked.append(self.stack(f"{name}.{kind}", found) if found else None)
        return Parts(*stacked)

    def _weight(self, tensor: Tensor) -> Tensor:
        self._weights[tensor.name] = tensor
        return tensor

    def constant(self, name: str, dtype: str, shape: Sequence[int], data: bytes) -> Tensor:
        """Declare a tensor whose bytes (little endian) are part of the program: rotary frequencies,
        or norms that a checkpoint stores in a type other than f32."""
        if len(data) != tensor_bytes(dtype, shape):
            raise ValueError(f"constant {name}: {len(data)} bytes do not fill {dtype} {shape}")
        constants = self.program.constants
        constants += bytes(-len(constants) % _CONSTANT_ALIGNMENT)
        offset = len(constants)
        constants += data
        return self.weight(name, dtype, shape, file=self.file(CONSTANTS_PATH), offset=offset)

    def kv_group(self, window: int = 0) -> GroupEntry:
        """The group of the layers whose queries see `window` tokens (0 = all), declared at its
        first use."""
        if window and not self._keeps_context:
            return self.group(GroupEntry(f"sliding_{window}", "sliding_window", window))
        return self.group(GroupEntry("full", "full"))

    def group(self, entry: GroupEntry) -> GroupEntry:
        """Declare a KV group, unless it is declared already."""
        if entry not in self.program.groups:
            self.program.groups.append(entry)
        return entry

    def cache(
        self,
        name: str,
        group: GroupEntry,
        dims: Sequence[int],
        *,
        layout: str = "kv",
        dtype: str = KV,
        window: int | None = None,
    ) -> Cache:
        """Declare the cache of a layer of `group`, whose queries see `window` tokens (0 = all), by
        default those that the group keeps."""
        self.program.caches.append(CacheEntry(name, group.name, layout, dtype, tuple(dims)))
        self._windows[name] = group.window if window is None else window
        return Cache(name, layout, tuple(dims), self._windows[name], self)

    def declared_cache(self, name: str) -> Cache:
        """The cache `name`, which another layer has declared."""
        (entry,) = (cache for cache in self.program.caches if cache.name == name)
        return Cache(name, entry.layout, entry.dims, self._windows[name], self)

    def adapter(self, name: str, shape: tuple[int, ...]) -> AdapterTable:
        """Declare the adapters of a layer with a weight of `shape`."""
        self.program.adapters.append(AdapterEntry(name, shape))
        return AdapterTable(name, shape, self)

    def input(self, name: str, dtype: str, shape: Shape) -> Tensor:
        """Declare an array of the step's batch by its name in `cc/ops/batch_view.h`."""
        self.program.inputs.append(ValueEntry(name, dtype, shape))
        return Tensor(name, dtype, shape, self)

    def declared_input(self, name: str) -> Tensor:
        """The input `name`, which has been declared."""
        (entry,) = (entry for entry in self.program.inputs if entry.name == name)
        return Tensor(entry.name, entry.dtype, entry.shape, self)

    def declares_input(self, name: str) -> bool:
        return any(entry.name == name for entry in self.program.inputs)

    def output(self, name: str, value: Tensor) -> None:
        """Return `value` from each step as "logits" (f32 [logits_rows, vocabulary]), "pooled"
        (f32 [requests, dimension]) or under a name of the caller's."""
        self.program.outputs.append(OutputEntry(name, value.name))

    def name(self, value: Tensor, name: str) -> Tensor:
        """Give the result of an op an explicit name in the program, before any op reads it; only
        the returned tensor is valid afterwards.

        Raises:
            ValueError: `value` already has an explicit name, as inputs and weights do.
        """
        values, ops = self.program.values, self.program.ops
        places = reversed(range(len(values)))
        at = next((i for i in places if values[i].name == value.name), None)
        if at is None or value.name != f"v{at}":
            raise ValueError(f"{value.name} cannot be renamed to {name}")
        values[at] = replace(values[at], name=name)
        writer = next(i for i in reversed(range(len(ops))) if value.name in ops[i].outputs)
        outputs = tuple(name if out == value.name else out for out in ops[writer].outputs)
        ops[writer] = replace(ops[writer], outputs=outputs)
        return replace(value, name=name)

    def emit(
        self,
        op: str,
        inputs: Sequence[Operand],
        results: Sequence[tuple[Shape, str]],
        attributes: Sequence[tuple[str, float]] = (),
    ) -> tuple[Tensor, ...]:
        """Append an op and its outputs, a shape and a dtype each; called only by the tracing
        functions in `pagemill.ops`."""
        for operand in inputs:
            if operand is not None and operand.trace is not self:
                raise ValueError(f"{op}: operand {operand.name} belongs to another trace")
        outputs: list[Tensor] = []
        for shape, dtype in results:
            if isinstance(shape[0], str) and shape[0] not in DIMS:
                raise ShapeError(f"{op}: unknown dimension in {format_shape(shape)}")
            entry = ValueEntry(f"v{len(self.program.values)}", dtype, shape)
            self.program.values.append(entry)
            outputs.append(Tensor(entry.name, entry.dtype, shape, self))
        names = tuple(None if operand is None else operand.name for operand in inputs)
        self.program.ops.append(
            OpEntry(op, names, tuple(output.name for output in outputs), tuple(attributes))
        )
        return tuple(outputs)
