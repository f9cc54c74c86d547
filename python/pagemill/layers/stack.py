"""The layers of a model, one after the other: the loop that every family has.

    x = stack(weights, x, sizes.layers, lambda layer, x: self._layer(weights, layer, x, rotary))

The value after layer i is `layer.<i>` in the program. By these names a program is cut into stages
(`ops/cut.py`), and hidden states are returned from a step.
"""

from __future__ import annotations

from collections.abc import Callable

from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor, Trace

_PREFIX = "layer."


def stack(
    weights: Weights, x: Tensor, layers: int, make_layer: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """`make_layer(i, x)` traces layer i on x [tokens, hidden] and returns its result, the next
    layer's x.

    Raises:
        ValueError: a layer has no op.
    """
    for layer in range(layers):
        x = weights.trace.name(make_layer(layer, x), f"{_PREFIX}{layer}")
    return x


def layer_results(trace: Trace) -> dict[int, Tensor]:
    """The value after each layer that `stack` has traced."""
    return {
        int(value.name.removeprefix(_PREFIX)): Tensor(value.name, value.dtype, value.shape, trace)
        for value in trace.program.values
        if value.name.startswith(_PREFIX)
    }
