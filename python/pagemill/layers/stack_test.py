"""`stack` calls the layers in order and names what they return."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.stack import RESULT, layer_values, stack
from pagemill.ops.program_text import from_text, to_text
from pagemill.ops.trace import Tensor, Trace

SILU = ops.ActivationKind.SILU


def _weights() -> Weights:
    return cast(Any, SimpleNamespace(trace=Trace()))


def _layer(layer: int, x: Tensor) -> Tensor:
    """Layer i has i + 1 ops, so that layers can be told apart."""
    for _ in range(layer + 1):
        x = ops.activation(x, SILU)
    return x


def _input(weights: Weights) -> Tensor:
    return weights.trace.input("x", "act", ("tokens", 4))


def test_results_have_names_that_later_ops_read():
    weights = _weights()
    trace = weights.trace
    result = stack(weights, _input(weights), 3, _layer)
    trace.output("y", ops.activation(result, SILU))
    trace.program.check_integrity()
    program = from_text(to_text(trace.program))
    edges = [(op.inputs[0], op.outputs[0]) for op in program.ops]
    assert edges == [
        ("x", "layer.0"),
        ("layer.0", "v1"),
        ("v1", "layer.1"),
        ("layer.1", "v3"),
        ("v3", "v4"),
        ("v4", "layer.2"),
        ("layer.2", "v6"),
    ]
    results = layer_values(trace, RESULT)
    assert list(results) == [0, 1, 2] and results[2] == result
    assert result.shape == ("tokens", 4) and result.dtype == "act"


def test_a_layer_that_returns_its_input_is_refused():
    """It would take the name from the layer before it."""
    weights = _weights()
    with pytest.raises(ValueError, match=r"layer\.0 cannot be renamed to layer\.1"):
        stack(weights, _input(weights), 2, lambda i, x: x if i else _layer(i, x))
    with pytest.raises(ValueError, match=r"x cannot be renamed to layer\.0"):
        stack(weights, weights.trace.input("x", "act", ("tokens", 4)), 2, lambda _, x: x)
