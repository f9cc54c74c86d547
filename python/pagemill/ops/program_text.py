"""The text form of a program (`docs/program_format.md`), shared by Python and C++."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pagemill.ops.program import (
    ACT,
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
from pagemill.tensor.dtypes import DTYPES

HEADER = "pagemill-program 3"


class ProgramTextError(ValueError):
    """The text is not a program; the message names the line."""


def to_text(program: Program) -> str:
    """Write `program`; equal programs give equal texts."""
    lines = [HEADER]
    lines += [f"file {index} {path}" for index, path in enumerate(program.files)]
    for group in program.groups:
        window = f" window={group.window}" if group.window else ""
        lines.append(f"group {group.name} {group.kind}{window}")
    for weight in program.weights:
        shape = _shape_text(weight.shape)
        strides = "".join(f" {by}" for by in (weight.row_stride, weight.column_stride) if by)
        place = f"{weight.file} {weight.offset}{strides}"
        lines.append(f"weight {weight.name} {weight.dtype} {shape} {place}")
    for stack in program.stacks:
        what = f"stack {stack.name} {stack.dtype} {_shape_text(stack.shape)}"
        lines.append(f"{what} {','.join(stack.parts)}")
    lines += [_quantized_text(entry) for entry in program.quantized]
    for cache in program.caches:
        dims = _shape_text(cache.dims)
        lines.append(f"cache {cache.name} {cache.group} {cache.layout} {cache.dtype} {dims}")
    lines += [f"adapter {e.name} {_shape_text(e.shape)}" for e in program.adapters]
    for word, entries in (("input", program.inputs), ("value", program.values)):
        lines += [f"{word} {e.name} {e.dtype} {_shape_text(e.shape)}" for e in entries]
    lines += [_op_text(op) for op in program.ops]
    lines += [f"output {output.name} {output.value}" for output in program.outputs]
    if program.constants:
        lines += [f"constants {len(program.constants)}", program.constants.hex()]
    return "\n".join(lines) + "\n"


def from_text(text: str) -> Program:
    """Read a program and check its integrity.

    Raises:
        ProgramTextError: a line cannot be read, or the program is inconsistent.
    """
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ProgramTextError(f"line 1: expected {HEADER!r}, found {lines[0][:40]!r}")
    program = Program()
    index = 1
    while index < len(lines):
        line = lines[index]
        index += 1
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        try:
            if word == "constants":
                data = lines[index] if index < len(lines) else ""
                index += 1
                program.constants = _constants(rest, data)
            else:
                _read_line(program, word, rest)
        except (ValueError, IndexError) as error:
            raise ProgramTextError(f"line {index}: {error} in {line[:120]!r}") from error
    try:
        program.check_integrity()
    except ValueError as error:
        raise ProgramTextError(str(error)) from error
    return program


def _shape_text(shape: Shape) -> str:
    return ",".join(str(dim) for dim in shape)


def _names_text(names: Sequence[str | None]) -> str:
    return ",".join("-" if name is None else name for name in names)


def _quantized_text(entry: QuantizedEntry) -> str:
    form = entry.format
    what = f"quantized {entry.name} {entry.dtype} {_shape_text(entry.shape)}"
    parts = entry.parts if entry.parts.factor is not None else entry.parts[:-1]
    how = f"{form.layout} {_shape_text(form.block)} {_names_text(parts)}"
    if form.at != (0, 0):
        how += f" at={_shape_text(form.at)}"
    if form.row_step:
        how += f" row_step={form.row_step}"
    if form.quantized_activations:
        how += " quantized_activations=1"
    return f"{what} {how}"


def _number_text(value: float) -> str:
    """Shortest decimal that reads back as the same double; integers without a point."""
    return str(int(value)) if value == math.floor(value) and abs(value) < 1e15 else repr(value)


def _op_text(op: OpEntry) -> str:
    parts = [f"op {op.op} {_names_text(op.inputs)} ->"]
    if op.outputs:
        parts.append(",".join(op.outputs))
    parts += [f"{name}={_number_text(value)}" for name, value in op.attributes]
    return " ".join(parts)


def _read_line(program: Program, word: str, rest: str) -> None:
    if word == "file":
        number, path = rest.split(" ", 1)  # a path may hold spaces
        if int(number) != len(program.files):
            raise ValueError(f"file {number} out of order")
        program.files.append(path)
        return
    fields = rest.split(" ")
    if word == "op":
        program.ops.append(_read_op(fields))
        return
    if len(fields) not in _FIELDS.get(word, ()):
        raise ValueError(f"unknown word {word!r}" if word not in _FIELDS else "wrong field count")
    if word == "weight":
        shape = tuple(int(dim) for dim in fields[2].split(","))
        place = (int(field) for field in fields[3:])
        program.weights.append(WeightEntry(fields[0], _dtype(fields[1]), shape, *place))
    elif word == "quantized":
        program.quantized.append(_read_quantized(fields))
    elif word == "stack":
        shape = tuple(int(dim) for dim in fields[2].split(","))
        parts = tuple(fields[3].split(","))
        program.stacks.append(StackEntry(fields[0], _dtype(fields[1]), shape, parts))
    elif word == "group":
        program.groups.append(_read_group(fields))
    elif word == "cache":
        name, group, layout, dtype, dims = fields
        dtype = dtype if dtype == KV else _dtype(dtype)
        shape = tuple(int(dim) for dim in dims.split(","))
        program.caches.append(CacheEntry(name, group, layout, dtype, shape))
    elif word == "adapter":
        shape = tuple(int(dim) for dim in fields[1].split(","))
        program.adapters.append(AdapterEntry(fields[0], shape))
    elif word == "output":
        program.outputs.append(OutputEntry(fields[0], fields[1]))
    else:
        entries = program.inputs if word == "input" else program.values
        dtype = fields[1] if fields[1] == ACT else _dtype(fields[1])
        entries.append(ValueEntry(fields[0], dtype, _shape(fields[2])))


# Fields after the word; `file` and `op` have a grammar of their own.
_FIELDS = {
    "weight": (5, 6, 7),
    "stack": (4,),
    "quantized": (6, 7, 8, 9),
    "group": (2, 3),
    "cache": (5,),
    "adapter": (2,),
    "input": (3,),
    "value": (3,),
    "output": (2,),
}


def _read_group(fields: list[str]) -> GroupEntry:
    window = 0
    if len(fields) == 3:
        word, equals, number = fields[2].partition("=")
        if word != "window" or not equals:
            raise ValueError(f"expected window=<tokens>, found {fields[2]!r}")
        window = int(number)
    return GroupEntry(fields[0], fields[1], window)


def _read_names(text: str) -> tuple[str | None, ...]:
    return tuple(None if name == "-" else name for name in text.split(","))


def _read_quantized(fields: list[str]) -> QuantizedEntry:
    name, dtype, shape, layout, block, names = fields[:6]
    form = Format(layout, _pair(block))
    for field in fields[6:]:
        word, _, value = field.partition("=")
        if word == "at":
            form = replace(form, at=_pair(value))
        elif word == "row_step":
            form = replace(form, row_step=int(value))
        elif field == "quantized_activations=1":
            form = replace(form, quantized_activations=True)
        else:
            raise ValueError(f"expected at=, row_step= or quantized_activations=1, found {field!r}")
    parts = _read_names(names)
    if not 4 <= len(parts) <= 5:
        raise ValueError(f"expected values,scales,zeros,groups[,factor], found {names!r}")
    dims = tuple(int(dim) for dim in shape.split(","))
    return QuantizedEntry(name, _dtype(dtype), dims, form, PartNames(*parts))


def _pair(text: str) -> tuple[int, int]:
    first, second = text.split(",")
    return int(first), int(second)


def _read_op(fields: list[str]) -> OpEntry:
    op, operands, arrow = fields[:3]
    if arrow != "->":
        raise ValueError("expected '->'")
    rest = fields[3:]
    outputs: tuple[str, ...] = ()
    if rest and "=" not in rest[0]:
        outputs = tuple(rest.pop(0).split(",")) if rest[0] else ()
    attributes: list[tuple[str, float]] = []
    for field in rest:
        name, equals, value = field.partition("=")
        if not equals:
            raise ValueError(f"attribute {field!r} is not name=value")
        attributes.append((name, float(value)))
    return OpEntry(op, _read_names(operands), outputs, tuple(attributes))


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    return name


def _shape(text: str) -> Shape:
    first, *others = text.split(",")
    dims: list[Dim] = [first if first in DIMS else int(first)]
    return (*dims, *(int(dim) for dim in others))


def _constants(size: str, data: str) -> bytearray:
    constants = bytearray.fromhex(data)
    if len(constants) != int(size):
        raise ValueError(f"{len(constants)} bytes of constants, {size} announced")
    return constants
