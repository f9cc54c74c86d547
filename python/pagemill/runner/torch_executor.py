"""Runs a program with the torch reference of each op, on any torch device.

The oracle of the native kernels, and the first working path on a new accelerator. It takes the same
text and the same batches as the native executor, and serves the engine as the callable of
`_native.PythonExecutor`:

    executor = TorchExecutor(built.program_text, TorchOptions(device="cuda", dtype="bf16"))
    logits = executor(batch)["logits"]

Values have the types in the program; `act` and `kv` have those of the options. Matrices are
converted to the activations' type when they are loaded. Within a step nothing waits for the device
before the result is copied to the host.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pagemill.ops.program import (
    ACT,
    CONSTANTS_PATH,
    KV,
    Program,
    QuantizedEntry,
    WeightEntry,
    has_latents_alone,
)
from pagemill.ops.program_text import from_text
from pagemill.ops.table import reference
from pagemill.ops.torch_step import (
    TorchCache,
    TorchF8Rows,
    TorchLatentCache,
    TorchState,
    TorchStep,
    make_step,
)
from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.location import TensorLocation
from pagemill.weights.quantized import dequantize_parts
from pagemill.weights.read import as_f32, read_bytes

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_FIXED_DTYPES = _DTYPES | {"i32": torch.int32}

Batch = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """`device` as torch names it; `dtype` is the type of `act` and of matrices, `kv_cache_dtype`
    the type of `kv`, each "f32", "bf16" or "f16", of `kv` also "fp8" if all caches are latent;
    `num_blocks` KV blocks of `block_size` tokens, the null block included."""

    device: str = "cpu"
    dtype: str = "f32"
    kv_cache_dtype: str = "f32"
    num_blocks: int = 64
    block_size: int = 16


@dataclass(frozen=True, slots=True)
class _BoundOp:
    """`dead`: values that no later op reads; `row_shapes`: dimensions 1... of each output, and
    `dtypes` their types; `widens`: a result is f32, so the op reads activations in f32."""

    run: Callable[..., tuple[torch.Tensor, ...]]
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    row_shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    widens: bool
    attributes: Mapping[str, float]
    dead: tuple[str, ...]


class TorchExecutor:
    """One program with its weights and caches on a device. One step at a time.

    Raises (on construction):
        ProgramTextError: the text is no program.
        ValueError: an option, an op or a weight's type is not known.
        OSError: a weight file cannot be read.
    """

    def __init__(self, program_text: str, options: TorchOptions) -> None:
        f8 = options.kv_cache_dtype == "fp8"
        kv_cache_dtype = "bf16" if f8 else options.kv_cache_dtype
        for dtype in (options.dtype, kv_cache_dtype):
            if dtype not in _DTYPES:
                raise ValueError(f"dtype {dtype!r}; known: {', '.join(_DTYPES)}")
        program = from_text(program_text)
        if f8 and not has_latents_alone(program.caches):
            raise ValueError("kv_cache_dtype 'fp8' is for programs with latent caches alone")
        self._options = options
        self._device = torch.device(options.device)
        self._dtype = _DTYPES[options.dtype]
        parts = _parts(program)
        self._constants: dict[str, Any] = {
            weight.name: self._load(program, weight)
            for weight in program.weights
            if weight.name not in parts
        }
        for stack in program.stacks:
            if stack.name not in parts:
                of_stack = [self._constants.pop(name) for name in stack.parts]
                self._constants[stack.name] = torch.stack(of_stack)
        numbers = _Numbers(program)
        for entry in program.quantized:
            self._constants[entry.name] = torch.as_tensor(numbers.of(entry)).to(
                self._device, self._dtype
            )
        self.weight_bytes = sum(t.nbytes for t in self._constants.values())
        # Each group has one block table: a block takes one page here, for any number of layers.
        tables = {group.name: index for index, group in enumerate(program.groups)}
        self._block_sizes = [options.block_size] * len(tables)
        for cache in program.caches:
            table = tables[cache.group]
            self._block_sizes[table] = math.lcm(self._block_sizes[table], cache.tokens_of_row)
        dtypes = _FIXED_DTYPES | {ACT: self._dtype, KV: _DTYPES[kv_cache_dtype]}
        for cache in program.caches:
            table = tables[cache.group]
            slots = options.num_blocks * self._block_sizes[table]
            zeros = functools.partial(torch.zeros, dtype=dtypes[cache.dtype], device=self._device)
            if cache.layout == "state":
                pages = zeros((options.num_blocks, *cache.dims))
                self._constants[cache.name] = TorchState(pages, table)
            elif cache.layout == "latent":
                count, width, rest = (
                    slots // cache.tokens_of_row,
                    cache.dims[0],
                    cache.bf16_elements,
                )
                if f8 and cache.dtype == KV and rest < width:
                    rows = TorchF8Rows(count, width, rest, self._device)
                else:
                    rows = zeros((count, width))
                latents = TorchLatentCache(rows, table, cache.tokens_of_row)
                self._constants[cache.name] = latents
            else:
                keys, values = (zeros((slots, *cache.dims)) for _ in range(2))
                self._constants[cache.name] = TorchCache(keys, values, table)
        # It holds no adapters: every token is computed with the model as it is.
        self._constants |= {entry.name: {} for entry in program.adapters}
        # Indices are 64 bit in torch.
        indices = dtypes | {"i32": torch.int64}
        self._inputs = [(entry, indices[entry.dtype]) for entry in program.inputs]
        self._tensor_inputs = [entry.name for entry in program.inputs if entry.dtype != "i32"]
        self._outputs = {output.name: output.value for output in program.outputs}
        self._ops = _bind(program, dtypes)

    @property
    def table_block_sizes(self) -> list[int]:
        """Tokens per block in each block table of a batch."""
        return self._block_sizes

    def __call__(self, batch: Batch) -> dict[str, npt.NDArray[np.float32]]:
        """Run one step: the int32 arrays of a batch by name (`cc/bindings/batch_arrays.h`).

        Returns the program's outputs by name.
        """
        return {name: tensor.cpu().numpy() for name, tensor in self.run(batch).items()}

    @torch.inference_mode()
    def run(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Like a call, but the f32 results stay on the device and may still be being computed."""
        given = batch.get("inputs", {})
        if not isinstance(given, Mapping):  # a runner gives them in the order of the program
            batch = {**batch, "inputs": dict(zip(self._tensor_inputs, given, strict=True))}
        return self.run_step(make_step(batch, self._device))

    @torch.inference_mode()
    def run_step(self, step: TorchStep) -> dict[str, torch.Tensor]:
        """Run a step whose batch is on the device already; reads no host memory."""
        values: dict[str, Any] = {
            entry.name: step.inputs[entry.name].to(dtype) for entry, dtype in self._inputs
        }
        for op in self._ops:
            operands = [self._operand(name, values, op.widens) for name in op.inputs]
            results = op.run(operands, op.attributes, step)
            described = zip(op.outputs, op.row_shapes, op.dtypes, results, strict=True)
            for name, row_shape, dtype, result in described:
                values[name] = result.reshape(result.shape[0], *row_shape).to(dtype)
            for name in op.dead:
                del values[name]
        return {output: values[name].float() for output, name in self._outputs.items()}

    def _operand(self, name: str | None, values: Mapping[str, Any], widen: bool) -> Any:
        """A weight, a cache, or a value of the step, in f32 if it is to be widened."""
        if name is None:
            return None
        if name in self._constants:
            return self._constants[name]
        value = values[name]
        return value.float() if widen and value.is_floating_point() else value

    def _load(self, program: Program, weight: WeightEntry) -> torch.Tensor:
        """The weight on the device: matrices in the activations' type, vectors in f32, indices as
        they are."""
        data, matrix = _stored_bytes(program, weight), len(weight.shape) > 1
        if weight.dtype == "i32":
            indices = data.view("<i4").astype(np.int32).reshape(weight.shape)
            return torch.as_tensor(indices).to(self._device)
        if weight.dtype == "bf16":  # converted on the device: half of the bytes to move
            bits = torch.as_tensor(np.array(data).view(np.int16)).view(torch.bfloat16)
            values = bits.reshape(weight.shape)
        else:
            values = torch.as_tensor(np.array(as_f32(weight.dtype, weight.shape, data)))
        return values.to(self._device).to(self._dtype if matrix else torch.float32)


def _parts(program: Program) -> set[str]:
    """The parts of quantized weights, which no op reads."""
    parts = {name for entry in program.quantized for name in entry.parts if name is not None}
    return parts | {name for stack in program.stacks if stack.name in parts for name in stack.parts}


class _Numbers:
    """The values of a program's quantized weights and of their parts."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._weights = {weight.name: weight for weight in program.weights}
        self._stacks = {stack.name: stack for stack in program.stacks}

    def of(self, entry: QuantizedEntry) -> npt.NDArray[np.float32]:
        values, scales, *others = map(self._part, entry.parts)
        if values is None or scales is None:
            raise ValueError(f"{entry.name} has no values or no scales")
        return dequantize_parts(entry, values, scales, *others)

    def _part(self, name: str | None) -> npt.NDArray[Any] | None:
        if name is None:
            return None
        if name in self._stacks:
            return np.stack([self._array(part) for part in self._stacks[name].parts])
        return self._array(name)

    def _array(self, name: str) -> npt.NDArray[Any]:
        weight = self._weights[name]
        data = _stored_bytes(self._program, weight)
        if weight.dtype == "i32":
            return data.view("<i4").astype(np.int32).reshape(weight.shape)
        if weight.dtype == "u8":
            return data.astype(np.float32).reshape(weight.shape)
        return as_f32(weight.dtype, weight.shape, data)


def _stored_bytes(program: Program, weight: WeightEntry) -> npt.NDArray[np.uint8]:
    path = program.files[weight.file]
    if path == CONSTANTS_PATH:
        size = tensor_bytes(weight.dtype, weight.shape)
        return np.frombuffer(program.constants, np.uint8, size, weight.offset)
    if weight.column_stride:
        (rows, columns), element = weight.shape, tensor_bytes(weight.dtype, (1,))
        strides = (weight.row_stride, weight.column_stride, 1)
        span = (rows - 1) * weight.row_stride + (columns - 1) * weight.column_stride + element
        data = np.memmap(path, np.uint8, "r", weight.offset, (span,))
        strided = np.lib.stride_tricks.as_strided(data, (rows, columns, element), strides)
        return np.ascontiguousarray(strided).reshape(-1)
    if weight.row_stride:
        rows, row = weight.shape[0], tensor_bytes(weight.dtype, (1, *weight.shape[1:]))
        span = (rows - 1) * weight.row_stride + row
        data = np.memmap(path, np.uint8, "r", weight.offset, (span,))
        strided = np.lib.stride_tricks.as_strided(data, (rows, row), (weight.row_stride, 1))
        return np.ascontiguousarray(strided).reshape(-1)
    return read_bytes(TensorLocation(weight.name, weight.dtype, weight.shape, path, weight.offset))


def _bind(program: Program, dtypes: Mapping[str, torch.dtype]) -> list[_BoundOp]:
    shapes = {value.name: value.shape for value in program.values}
    types = {value.name: dtypes[value.dtype] for value in program.values}
    last_use: dict[str, int] = {}
    for index, op in enumerate(program.ops):
        # A result that no op reads dies at its own op.
        last_use |= {name: index for name in (*op.inputs, *op.outputs) if name in shapes}
    for output in program.outputs:
        last_use[output.value] = len(program.ops)
    return [
        _BoundOp(
            reference(op.op),
            op.inputs,
            op.outputs,
            tuple(tuple(int(dim) for dim in shapes[name][1:]) for name in op.outputs),
            tuple(types[name] for name in op.outputs),
            any(types[name] is torch.float32 for name in op.outputs),
            dict(op.attributes),
            tuple(name for name, last in last_use.items() if last == index),
        )
        for index, op in enumerate(program.ops)
    ]
