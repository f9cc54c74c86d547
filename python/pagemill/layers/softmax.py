"""Softmax over the features of a row, between two linear layers.

    x = softmax(weights, linear(weights, "out", x, (count,), bias=True, dtype="f32"), ones)

It is what a router makes of logits if it chooses all experts, in the order of a table
(`ops.moe_route`).
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor


def softmax(weights: Weights, logits: Tensor, ones: Tensor) -> Tensor:
    """logits f32 [N, F] -> their softmax, [N, F, 1]; `ones` [N, 1] are activations, all 1."""
    count = logits.width
    column = weights.constant("one", [[1.0]])
    first_of_table, _ = ops.argmax(ops.linear(ones, column, dtype="f32"))  # 0 for each row
    in_order = weights.constant(f"features.{count}", [[float(i) for i in range(count)]])
    routing = ops.Routing(choices=count)
    _, shares = ops.moe_route(logits, routing, table=(first_of_table, in_order))
    every = weights.constant(f"ones.{count}.1", [[1.0]] * count)
    return ops.scale_groups(ops.linear(ones, every, row_shape=(count, 1)), shares)
