"""Divides a program into two that run one after the other: stages of a pipeline.

    first, second = cut(program, "layer.3")     # layers.stack names the value after each layer

The first program returns, under their names, the values that the second reads; the second declares
them as inputs. Each has the weights, caches and KV groups of its own ops, and the outputs that they
compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pagemill.ops.program import (
    ACT,
    CONSTANTS_PATH,
    OpEntry,
    OutputEntry,
    Program,
    QuantizedEntry,
    StackEntry,
    ValueEntry,
    WeightEntry,
)


def cut(program: Program, after: str) -> tuple[Program, Program]:
    """Divide `program` behind the op that writes `after`.

    Raises:
        ValueError: no op writes `after`, no op follows, or one that follows reads a cache of an op
            before it, or a value that is no activation: stages pass on activations alone.
    """
    writers = [index for index, op in enumerate(program.ops) if after in op.outputs]
    if not writers:
        raise ValueError(f"no op of the program writes {after!r}")
    first, second = program.ops[: writers[0] + 1], program.ops[writers[0] + 1 :]
    if not second:
        raise ValueError(f"nothing follows {after!r}")
    caches = {cache.name for cache in program.caches}
    if shared := sorted(caches & _operands(first) & _operands(second)):
        raise ValueError(f"ops in front of {after!r} and behind it read the cache {shared[0]!r}")
    written = {name for op in first for name in op.outputs}
    returned = [output for output in program.outputs if output.value in written]
    crossing = [value for value in program.values if value.name in written & _operands(second)]
    for value in crossing:
        if value.dtype != ACT:
            raise ValueError(
                f"ops behind {after!r} read {value.name!r} of {value.dtype}, which is written in"
                " front of it"
            )
    names = [OutputEntry(value.name, value.name) for value in crossing]
    kept = [output for output in program.outputs if output.value not in written]
    return (
        _part(program, first, [], [*returned, *names]),
        _part(program, second, crossing, kept),
    )


def _operands(ops: Iterable[OpEntry]) -> set[str]:
    """The names of what the ops read; an attribute with the name of an input reads it."""
    ops = list(ops)
    operands = {name for op in ops for name in op.inputs if name is not None}
    return operands | {name for op in ops for name, value in op.attributes if value}


def _part(
    program: Program,
    ops: list[OpEntry],
    received: Collection[ValueEntry],
    outputs: list[OutputEntry],
) -> Program:
    """The part of `program` that the ops need; `received` become inputs."""
    read = _operands(ops)
    made: list[QuantizedEntry | StackEntry] = [*program.quantized, *program.stacks]
    for entry in made:  # quantized ones first: their parts may be stacks
        if entry.name in read:
            read |= {part for part in entry.parts if part is not None}
    written = {name for op in ops for name in op.outputs}
    caches = [cache for cache in program.caches if cache.name in read]
    groups = {cache.group for cache in caches}
    files, weights = _with_files(program, [w for w in program.weights if w.name in read])
    return Program(
        files=files,
        weights=weights,
        stacks=[entry for entry in program.stacks if entry.name in read],
        quantized=[entry for entry in program.quantized if entry.name in read],
        groups=[group for group in program.groups if group.name in groups],
        caches=caches,
        inputs=[*(entry for entry in program.inputs if entry.name in read), *received],
        values=[value for value in program.values if value.name in written],
        ops=ops,
        outputs=outputs,
        constants=program.constants if CONSTANTS_PATH in files else bytearray(),
    )


def _with_files(
    program: Program, weights: list[WeightEntry]
) -> tuple[list[str], list[WeightEntry]]:
    """The files of these weights, and the weights with renumbered files."""
    used = sorted({weight.file for weight in weights})
    numbers = {file: number for number, file in enumerate(used)}
    return (
        [program.files[file] for file in used],
        [replace(weight, file=numbers[weight.file]) for weight in weights],
    )
