"""Convolutions as `unfold` and `linear` compute them: the shapes that the ops return, and torch
references against torch's convolution."""

import math

import pytest
import torch

from pagemill import ops
from pagemill.ops.table import reference
from pagemill.ops.trace import ShapeError
from pagemill.ops.trace_values import Values


def _run(op: str, *inputs: torch.Tensor, **attributes: float) -> torch.Tensor:
    (y,) = reference(op)(list(inputs), attributes, None)
    return y


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def test_shapes():
    v = Values()
    x, w = v.act("tokens", 7, 4), v.weight("f32", 5, 4)
    assert ops.unfold(x, 3, stride=2, padding=1).shape == ("tokens", 4, 12)
    assert ops.unfold(x, 7).shape == ("tokens", 1, 28)
    assert ops.linear(x, w).shape == ("tokens", 7, 5)
    assert ops.linear(x, w, row_shape=(35,)).shape == ("tokens", 35)


def test_shapes_that_do_not_fit():
    v = Values()
    x = v.act("tokens", 7, 4)
    for options in ({"size": 8}, {"size": 0}, {"size": 3, "padding": 3}, {"size": 3, "stride": 0}):
        with pytest.raises(ShapeError, match=rf"has no windows of {options['size']} with"):
            ops.unfold(x, **options)
    with pytest.raises(ShapeError, match="must have rank 3"):
        ops.unfold(v.act("tokens", 28), 3)
    with pytest.raises(ShapeError, match="rows of 28, weight"):
        ops.linear(x, v.weight("f32", 5, 7))
    with pytest.raises(ShapeError, match=r"rows of 35 .* do not fit \(5,\)"):
        ops.linear(x, v.weight("f32", 5, 4), row_shape=(5,))


def test_convolution():
    x, w = _random(3, 7, 4), _random(5, 4, 3)
    windows = _run("unfold", x, size=3, stride=2, padding=1)
    y = _run("linear", windows, w.flatten(1))
    expected = torch.nn.functional.conv1d(x.transpose(1, 2), w, stride=2, padding=1)
    torch.testing.assert_close(y, expected.transpose(1, 2).flatten(1))
    assert _run("linear", windows[:0], w.flatten(1)).shape == (0, 20)
