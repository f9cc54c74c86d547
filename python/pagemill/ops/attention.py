"""`attention`: attention among the tokens that a request has in the step, without a KV cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_equal_shapes, require_rank
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool, window: int = 0
) -> Tensor:
    """q [T, Hq, D], k, v [T, Hk, D] -> softmax(q k^T scale) v, [T, Hq, D].

    A token attends to all tokens that its request has in the step; with `causal`, to those up to
    itself; with a window only to those less than `window` tokens away. Heads are grouped: Hq is a
    multiple of Hk.

    Raises:
        ShapeError: the operands do not fit.
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
    attributes = [("scale", scale), ("causal", int(causal))]
    if window:
        attributes.append(("window", window))
    return q.trace.emit("attention", [q, k, v], [(q.shape, q.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, request by request."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = inputs
    output = torch.empty_like(q)
    groups = q.shape[1] // k.shape[1]
    causal = attributes.get("causal", 1.0) != 0.0
    window = int(attributes.get("window", 0))
    for span in step.spans:
        rows = slice(span.begin, span.end)
        positions = torch.arange(span.end - span.begin, device=q.device)
        distance = positions[:, None] - positions
        seen = distance.abs() < window if window else torch.ones_like(distance, dtype=torch.bool)
        attended = scaled_dot_product_attention(
            q[rows].transpose(0, 1),
            k[rows].transpose(0, 1).repeat_interleave(groups, 0),
            v[rows].transpose(0, 1).repeat_interleave(groups, 0),
            seen & (distance >= 0) if causal else seen,
            scale=attributes["scale"],
        )
        output[rows] = attended.transpose(0, 1)
    return (output,)
