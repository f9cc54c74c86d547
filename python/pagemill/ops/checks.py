"""Shape and dtype checks of the ops' tracing functions; each message names op and operand."""

from __future__ import annotations

from collections.abc import Iterable

from pagemill.ops.program import ACT
from pagemill.ops.trace import ShapeError, Tensor, format_shape
from pagemill.tensor.dtypes import MATRIX_DTYPES


def require_f32(op: str, **operands: Tensor | None) -> None:
    """Norms, biases and other small weights are f32."""
    for name, tensor in operands.items():
        if tensor is not None and tensor.dtype != "f32":
            raise ShapeError(f"{op}: {name} ({tensor.name}) must be f32, got {tensor.dtype}")


def require_act(op: str, **operands: Tensor) -> None:
    """Activations have the type `act`."""
    for name, tensor in operands.items():
        if tensor.dtype != ACT:
            raise ShapeError(f"{op}: {name} ({tensor.name}) must be act, got {tensor.dtype}")


def require_act_or_f32(op: str, **operands: Tensor) -> None:
    """Activations, and f32 values such as logits."""
    for name, tensor in operands.items():
        require_dtype(op, name, tensor, (ACT, "f32"))


def require_dtype(op: str, name: str, tensor: Tensor, allowed: Iterable[str]) -> None:
    """`tensor` has one of the `allowed` dtypes."""
    if tensor.dtype not in allowed:
        expected = ", ".join(sorted(allowed))
        raise ShapeError(f"{op}: {name} ({tensor.name}) is {tensor.dtype}; expected {expected}")


def require_vector(op: str, name: str, tensor: Tensor | None, length: int) -> None:
    """`tensor`, if present, is [length]."""
    if tensor is not None and tensor.shape != (length,):
        shape = format_shape(tensor.shape)
        raise ShapeError(f"{op}: {name} ({tensor.name}) must be [{length}], got {shape}")


def require_rank(op: str, name: str, tensor: Tensor, rank: int) -> None:
    """`tensor` has `rank` dimensions."""
    if len(tensor.shape) != rank:
        shape = format_shape(tensor.shape)
        raise ShapeError(f"{op}: {name} ({tensor.name}) must have rank {rank}, got {shape}")


def require_weight(op: str, name: str, tensor: Tensor, rank: int, *, scaled: bool = False) -> None:
    """`tensor` is a matrix, or a stack of matrices; if `scaled`, also one with scales beside it."""
    require_rank(op, name, tensor, rank)
    if tensor.format is None:
        require_dtype(op, name, tensor, MATRIX_DTYPES)
    elif tensor.format.layout == "scaled" and not scaled:
        raise ShapeError(f"{op}: {name} ({tensor.name}) has scales, which {op} does not take")


def require_equal_shapes(op: str, left: Tensor, right: Tensor) -> None:
    """Both have the same shape."""
    if left.shape != right.shape:
        raise ShapeError(
            f"{op}: {left.name} is {format_shape(left.shape)} "
            f"but {right.name} is {format_shape(right.shape)}"
        )


def require_equal_rows(op: str, left: Tensor, right: Tensor) -> None:
    """Both have the same rows, in any shape."""
    if (left.rows, left.width) != (right.rows, right.width):
        raise ShapeError(
            f"{op}: {left.name} is {format_shape(left.shape)} "
            f"but {right.name} is {format_shape(right.shape)}"
        )


def last_dim(op: str, name: str, tensor: Tensor) -> int:
    """The last dimension, which must be a number."""
    last = tensor.shape[-1]
    if not isinstance(last, int):
        shape = format_shape(tensor.shape)
        raise ShapeError(f"{op}: {name} ({tensor.name}) needs a row dimension, got {shape}")
    return last
