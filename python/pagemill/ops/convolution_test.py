"""Convolutions as `unfold` and `linear` compute them, and `depthwise_conv`: the shapes that the ops
return, and torch references against torch's convolutions."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pagemill import ops
from pagemill.ops.table import reference
from pagemill.ops.trace import ShapeError
from pagemill.ops.trace_values import Values


def _run(op: str, *inputs: torch.Tensor | None, step: Any = None, **attributes: float):
    (y,) = reference(op)(list(inputs), attributes, step)
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


def test_shapes_of_listed_windows():
    v = Values()
    x, index = v.act("tokens", 16, 3, 2), v.i32(5, 2, 9)
    assert ops.unfold_listed(x, index, 6).shape == ("tokens", 2, 54)
    assert ops.unfold_listed(x, index, 12).shape == ("tokens", 2, 108)
    assert ops.unfold_listed(x, index, 6, shape=(9, 6)).shape == ("tokens", 2, 9, 6)
    with pytest.raises(ShapeError, match=r"windows of 54 elements do not fit \[9, 7\]"):
        ops.unfold_listed(x, index, 6, shape=(9, 7))
    assert ops.linear(v.act("tokens", 4, 3, 2), v.weight("f32", 5, 6)).shape == ("tokens", 4, 5)
    assert ops.linear(v.act("tokens", 4, 3, 2), v.weight("f32", 5, 2)).shape == ("tokens", 4, 3, 5)
    assert ops.linear(v.act("tokens", 1, 6), v.weight("f32", 5, 6)).shape == ("tokens", 1, 5)
    with pytest.raises(ShapeError, match="has no positions of 7 channels"):
        ops.unfold_listed(x, index, 7)
    with pytest.raises(ShapeError, match="index .* is act"):
        ops.unfold_listed(x, x, 6)


def test_listed_windows_are_a_convolution_of_images():
    """Two images of 4 x 4, of which a token has four pixels, and a part of one."""
    x, w = _random(2, 16, 3), _random(5, 3, 3, 3)
    numbers = torch.arange(1.0, 17).reshape(1, 1, 4, 4)
    places = torch.nn.functional.unfold(numbers, 3, padding=1, stride=2)[0].T - 1
    index = places.reshape(4, 1, 9).int()
    tokens = torch.cat([x.reshape(8, 4, 3), _random(1, 4, 3)])
    windows = _run("unfold", tokens, index, channels=3)
    y = _run("linear", windows, w.flatten(1)).reshape(9, 5)
    images = x.transpose(1, 2).reshape(2, 3, 4, 4)
    expected = torch.nn.functional.conv2d(images, w, stride=2, padding=1)
    torch.testing.assert_close(y[:8], expected.flatten(2).transpose(1, 2).reshape(8, 5))
    alone = torch.cat([tokens[8:], torch.zeros(3, 4, 3)])
    torch.testing.assert_close(windows[8:], _run("unfold", alone, index, channels=3)[:1])
    assert _run("unfold", tokens[:0], index, channels=3).shape == (0, 1, 27)


def test_windows_of_one_position_gather_rows():
    """Groups of two rows of three positions; the last one has one row."""
    x = _random(5, 3, 2)
    index = torch.tensor([[4, -1, 0, 9], [5, 2, 1, 3]]).reshape(2, 4, 1)
    zero = torch.zeros(2)
    first = [[x[1, 1], zero, x[0, 0], zero], [x[1, 2], x[0, 2], x[0, 1], x[1, 0]]]
    y = _run("unfold", x, index, channels=2)
    torch.testing.assert_close(y[:2], torch.stack([torch.stack(row) for row in first]))
    torch.testing.assert_close(y[4], torch.stack([zero, zero, x[4, 0], zero]))


def test_shapes_of_depthwise_convolutions():
    v = Values()
    x, taps, bias = v.act("tokens", 2, 3), v.weight("f32", 6, 1, 5), v.weight("f32", 6)
    assert ops.depthwise_conv(x, taps, bias, before=4).shape == ("tokens", 2, 3)
    v.trace.input("grid_positions", "i32", ("tokens", 3))
    square = v.weight("f32", 6, 1, 3, 3)
    assert ops.depthwise_conv(x, square, None, grid=True).shape == ("tokens", 2, 3)
    listed = ops.depthwise_conv_listed(v.act("tokens", 4, 6), taps, bias, v.i32(7, 5))
    assert listed.shape == ("tokens", 7, 6)


def test_depthwise_convolutions_that_do_not_fit():
    v = Values()
    x, taps, square = v.act("tokens", 6), v.weight("f32", 6, 5), v.weight("f32", 6, 3, 3)
    for message, call in (
        (r"rows of 6, w\d is \[5, 5\]", lambda: ops.depthwise_conv(x, v.weight("f32", 5, 5), None)),
        ("has 65 taps; 1 to 64", lambda: ops.depthwise_conv(x, v.weight("f32", 6, 65), None)),
        ("5 taps in front of a token, of 5", lambda: ops.depthwise_conv(x, taps, None, before=5)),
        ("5 taps are not the square", lambda: ops.depthwise_conv(x, taps, None, grid=True)),
        ("1 taps in front", lambda: ops.depthwise_conv(x, square, None, grid=True, before=1)),
        ("needs the input grid_positions", lambda: ops.depthwise_conv(x, square, None, grid=True)),
        (r"index is \[2, 4\]", lambda: ops.depthwise_conv_listed(x, taps, None, v.i32(2, 4))),
        ("bias", lambda: ops.depthwise_conv(x, taps, v.weight("f32", 5))),
    ):
        with pytest.raises(ShapeError, match=message):
            call()


@pytest.mark.parametrize(("size", "before"), [(5, 2), (4, 3), (3, 0)])
def test_depthwise_convolution_of_requests(size: int, before: int):
    """Requests of 9 tokens, of fewer than taps, and of one."""
    x, w, bias = _random(12, 6), _random(6, 1, size), _random(6)
    spans = [SimpleNamespace(begin=b, end=e) for b, e in ((0, 9), (9, 11), (11, 12))]
    y = _run("depthwise_conv", x, w, bias, step=SimpleNamespace(spans=spans), before=before)
    for span in spans:
        own = torch.nn.functional.pad(x[span.begin : span.end].T, (before, size - 1 - before))
        expected = torch.nn.functional.conv1d(own, w, bias, groups=6)
        torch.testing.assert_close(y[span.begin : span.end], expected.T)


def test_depthwise_convolution_on_a_grid():
    """An image of 4 x 6, square by square, and one of 2 x 2."""
    w = _random(5, 1, 3, 3)
    cells = torch.tensor([[row, column] for row in range(4) for column in range(6)])
    squares = cells.reshape(2, 2, 3, 2, 2).transpose(1, 2).reshape(-1, 2)
    small = torch.tensor([[1, 1], [0, 1], [1, 0], [0, 0]])
    places = torch.nn.functional.pad(torch.cat([squares, small]), (1, 0))
    step = SimpleNamespace(
        spans=[SimpleNamespace(begin=0, end=24), SimpleNamespace(begin=24, end=28)],
        inputs={"grid_positions": places},
    )
    x = _random(28, 5)
    y = _run("depthwise_conv", x, w, None, step=step, grid=1)
    for own, begin, (rows, columns) in ((squares, 0, (4, 6)), (small, 24, (2, 2))):
        image = torch.zeros(5, rows, columns)
        image[:, own[:, 0], own[:, 1]] = x[begin : begin + len(own)].T
        expected = torch.nn.functional.conv2d(image, w, padding=1, groups=5)
        found = y[begin : begin + len(own)]
        torch.testing.assert_close(found, expected[:, own[:, 0], own[:, 1]].T)


def test_depthwise_convolution_of_listed_positions():
    """With a stride of two, along the positions of each token."""
    x, w, bias = _random(3, 7, 4), _random(4, 1, 3), _random(4)
    index = 2 * torch.arange(4)[:, None] + torch.arange(3) - 1
    y = _run("depthwise_conv", x, w, bias, index)
    expected = torch.nn.functional.conv1d(x.mT, w, bias, stride=2, padding=1, groups=4)
    torch.testing.assert_close(y, expected.mT)
