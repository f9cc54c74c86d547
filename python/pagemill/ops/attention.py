"""`attention`: attention among the tokens that a request has in the step, without a KV cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_shapes, require_f32, require_rank
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    causal: bool,
    window: int = 0,
    grid_window: int = 0,
    biases: Tensor | None = None,
) -> Tensor:
    """q [T, Hq, D], k, v [T, Hk, D] -> softmax(q k^T scale + bias) v, [T, Hq, D].

    A token attends to all tokens that its request has in the step; with `causal`, to those up to
    itself; with a window only to those less than `window` tokens away. With `grid_window` it
    attends to those whose positions in the step's array `grid_positions` lie in its window of so
    many rows and columns: the tokens of a window follow each other. Heads are grouped: Hq is a
    multiple of Hk. `biases` f32 [Hq, 2 reach + 1] are those of each distance from a query to a key,
    from -reach to reach; farther keys have the bias of the reach.

    Raises:
        ShapeError: the operands do not fit, or the program has no grid to divide into windows.
    """
    require_act("attention", q=q, k=k, v=v)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_rank("attention", name, tensor, 3)
    require_equal_shapes("attention", k, v)
    heads, kv_heads = int(q.shape[1]), int(k.shape[1])
    if (q.rows, q.shape[2]) != (k.rows, k.shape[2]) or heads % kv_heads:
        raise ShapeError(
            f"attention: q is {format_shape(q.shape)}, k and v are {format_shape(k.shape)}"
        )
    operands = [q, k, v]
    if biases is not None:
        require_f32("attention", biases=biases)
        if len(biases.shape) != 2 or biases.shape[0] != heads or int(biases.shape[1]) % 2 == 0:
            raise ShapeError(
                f"attention: biases are {format_shape(biases.shape)}, they must be {heads} rows of"
                " an odd number of distances"
            )
        operands.append(biases)
    if grid_window and (causal or window or not q.trace.declares_input("grid_positions")):
        raise ShapeError(
            "attention: grid_window needs attention both ways without a window, and the input"
            " grid_positions"
        )
    attributes = [("scale", scale), ("causal", int(causal))]
    if window:
        attributes.append(("window", window))
    if grid_window:
        attributes.append(("grid_window", grid_window))
    return q.trace.emit("attention", operands, [(q.shape, q.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, request by request."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = inputs[:3]
    biases = inputs[3] if len(inputs) > 3 else None
    output = torch.empty_like(q)
    groups = q.shape[1] // k.shape[1]
    causal = attributes.get("causal", 1.0) != 0.0
    window = int(attributes.get("window", 0))
    side = int(attributes.get("grid_window", 0))
    for span in step.spans:
        rows = slice(span.begin, span.end)
        positions = torch.arange(span.end - span.begin, device=q.device)
        distance = positions[:, None] - positions
        seen = distance.abs() < window if window else torch.ones_like(distance, dtype=torch.bool)
        seen = seen & (distance >= 0) if causal else seen
        if side:
            cells = step.inputs["grid_positions"][rows] // torch.tensor(
                [1, side, side], device=q.device
            )
            seen = (cells[:, None] == cells).all(-1)
        # Added to scores: minus infinity for keys that are not seen.
        added = torch.zeros_like(distance, dtype=q.dtype).masked_fill(~seen, -torch.inf)
        if biases is not None:
            reach = biases.shape[1] // 2
            added = added + biases[:, reach + (-distance).clamp(-reach, reach)].to(q.dtype)
        attended = scaled_dot_product_attention(
            q[rows].transpose(0, 1),
            k[rows].transpose(0, 1).repeat_interleave(groups, 0),
            v[rows].transpose(0, 1).repeat_interleave(groups, 0),
            added,
            scale=attributes["scale"],
        )
        output[rows] = attended.transpose(0, 1)
    return (output,)
