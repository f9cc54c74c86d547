"""The loop over the layers of a model.

    x = stack(weights, x, sizes.layers, lambda layer, x: self._layer(weights, layer, x, rotary))

The value after layer i is `layer.<i>` in the program, the experts that it chooses for each token
are `experts.<i>` (counted from the first that the rank has, which is 0 on rank 0), the tokens that
its sparse attention chooses `chosen.<i>`, and what its alignment heads compare, queries of text and
keys of sound, `aligned.<i>`. These names are used to divide a program into stages (`ops/cut.py`)
and to return hidden states, choices and rows of tokens from a step.
"""

from __future__ import annotations

from collections.abc import Callable

from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor, Trace

RESULT = "layer"
EXPERTS = "experts"
CHOSEN = "chosen"
ALIGNED = "aligned"


def stack(
    weights: Weights, x: Tensor, layers: int, make_layer: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """`make_layer(i, x)` traces layer i on x [tokens, hidden] and returns its result, the next
    layer's x.

    Raises:
        ValueError: a layer has no op.
    """
    trace = weights.trace
    for layer in range(layers):
        trace.layer = layer
        x = trace.name(make_layer(layer, x), f"{RESULT}.{layer}")
    trace.layer = None
    return x


def name_in_layer(value: Tensor, kind: str) -> Tensor:
    """`value` as `<kind>.<i>`, if layer i is being traced; a layer has one value of a kind."""
    layer = value.trace.layer
    return value if layer is None else value.trace.name(value, f"{kind}.{layer}")


def layer_values(trace: Trace, kind: str) -> dict[int, Tensor]:
    """The value of this kind (`RESULT`, `EXPERTS`, `CHOSEN`, `ALIGNED`) in each layer that has
    one."""
    prefix = f"{kind}."
    return {
        int(value.name.removeprefix(prefix)): Tensor(value.name, value.dtype, value.shape, trace)
        for value in trace.program.values
        if value.name.startswith(prefix)
    }
