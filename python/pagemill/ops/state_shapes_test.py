"""Ops with a state return the shapes of their contract, and reject operands that violate it."""

from collections.abc import Callable

import pytest

from pagemill import ops
from pagemill.ops.trace import Cache, ShapeError, Tensor
from pagemill.ops.trace_values import Values


def _delta(v: Values, width: int, state: Cache, heads: int = 2) -> Tensor:
    """Of two heads."""
    qkv, b, a = v.act("tokens", width), v.act("tokens", heads), v.act("tokens", 2)
    return ops.gated_delta(qkv, b, a, v.weight("f32", 2), v.weight("f32", 2), state)


def _selective(v: Values, width: int, states: int) -> Tensor:
    """Of six channels."""
    x, dt, b, c = (v.act("tokens", n) for n in (6, width, states, 5))
    vectors = v.weight("f32", 6), v.weight("f32", 6)
    state = v.state(states, 6)
    return ops.selective_scan(x, dt, b, c, v.weight("f32", 6, states), *vectors, state)


def _matrix_wkv(v: Values, *, decay: Tensor | None = None, rate: int = 10) -> list[Tensor]:
    """Of two heads, five keys and three values."""
    rows = v.act("tokens", 2, 5), decay or v.weight("f32", 10), v.act("tokens", 10)
    operands = [*rows, v.act("tokens", 6), v.weight("f32", 10)]
    removal = ops.KeyRemoval(v.act("tokens", rate), *(v.weight("f32", 10) for _ in range(2)))
    state = v.state(2, 5, 3)
    y = ops.matrix_wkv(*operands, state)
    return [y, *ops.matrix_wkv_with_removal(*operands, removal, state)]


def _scan(v: Values, width: int, state: Cache) -> Tensor:
    """Of two heads."""
    vectors = [v.weight("f32", 2) for _ in range(3)]
    xbc, dt = v.act("tokens", width), v.act("tokens", 2)
    return ops.state_space_scan(xbc, dt, vectors[0], vectors[1], vectors[2], state)


def test_causal_conv_keeps_the_shape_of_rows():
    v = Values()
    x, taps, bias = v.act("tokens", 6), v.weight("f32", 6, 1, 4), v.weight("f32", 6)
    assert ops.causal_conv(x, taps, bias, v.state(3, 6)).shape == ("tokens", 6)


def test_heads_of_a_scan_lie_in_their_groups():
    v = Values()
    xbc, dt = v.act("tokens", 4 * 3 + 2 * 2 * 5), v.act("tokens", 4)
    vectors = [v.weight("f32", 4) for _ in range(3)]
    y = ops.state_space_scan(xbc, dt, vectors[0], vectors[1], vectors[2], v.state(4, 5, 3))
    assert (y.shape, y.dtype) == (("tokens", 2, 6), "act")


def test_gated_delta_has_rows_of_heads():
    v = Values()
    qkv, b, a = v.act("tokens", 2, 2 * 5 + 2 * 3), v.act("tokens", 2, 2), v.act("tokens", 4)
    vectors = v.weight("f32", 4), v.weight("f32", 4)
    y = ops.gated_delta(qkv, b, a, *vectors, v.state(4, 5, 3), by_group=True)
    assert (y.shape, y.dtype) == (("tokens", 4, 3), "act")
    assert dict(v.trace.program.ops[0].attributes) == {"by_group": 1}


def test_selective_scan_has_rows_of_channels():
    y = _selective(Values(), 6, 5)
    assert (y.shape, y.dtype) == (("tokens", 6), "act")


def test_wkv_keeps_the_shape_of_rows():
    v = Values()
    key, value = v.act("tokens", 2, 3), v.act("tokens", 2, 3)
    y = ops.wkv(key, value, v.weight("f32", 6), v.weight("f32", 6), v.state(3, 6))
    assert (y.shape, y.dtype) == (("tokens", 2, 3), "act")


def test_matrix_wkv_has_rows_of_heads():
    for y in _matrix_wkv(Values()):
        assert (y.shape, y.dtype) == (("tokens", 2, 3), "act")


def test_gated_recurrence_keeps_the_shape_of_rows():
    v = Values()
    x, gate = v.act("tokens", 2, 3), v.act("tokens", 2, 3)
    y = ops.gated_recurrence(x, gate, v.weight("f32", 6), v.state(6))
    assert (y.shape, y.dtype) == (("tokens", 2, 3), "act")


BAD: list[tuple[Callable[[Values], object], str]] = [
    (
        lambda v: ops.compress_tokens(
            v.act("tokens", 8), v.act("tokens", 8), v.weight("f32", 4, 8), v.state(2, 3, 8)
        ),
        r"must be state \(1 or 2, 3, channels\) for rows of 8",
    ),
    (
        lambda v: ops.gated_recurrence(
            v.act("tokens", 6), v.act("tokens", 6), v.weight("f32", 6), v.state(2, 3)
        ),
        r"holds state \(2, 3\), it must be state \(6,\)",
    ),
    (
        lambda v: ops.wkv(
            *(v.act("tokens", 6) for _ in range(2)),
            *(v.weight("f32", 6) for _ in range(2)),
            v.state(2, 6),
        ),
        r"holds state \(2, 6\), it must be state \(3, 6\)",
    ),
    (
        lambda v: _matrix_wkv(v, decay=v.act("tokens", 9)),
        r"decay \(.*\) is \[tokens, 9\], it must have as many rows and elements as key",
    ),
    (
        lambda v: _matrix_wkv(v, decay=v.weight("f32", 9)),
        "decay",
    ),
    (
        lambda v: _matrix_wkv(v, rate=9),
        "rate",
    ),
    (
        lambda v: ops.matrix_wkv(
            *(v.act("tokens", 10) for _ in range(4)), v.weight("f32", 10), v.state(2, 5, 3)
        ),
        "must have rows of 10 and 6 elements",
    ),
    (
        lambda v: ops.causal_conv(
            v.act("tokens", 6), v.weight("f32", 5, 1, 4), None, v.state(3, 6)
        ),
        r"rows of 6, w0 is \[5, 1, 4\]",
    ),
    (
        lambda v: ops.causal_conv(
            v.act("tokens", 6), v.weight("f32", 6, 1, 4), None, v.state(4, 6)
        ),
        r"holds state \(4, 6\), it must be state \(3, 6\)",
    ),
    (
        lambda v: ops.causal_conv(
            v.act("tokens", 6),
            v.weight("f32", 6, 1, 4),
            None,
            v.state(3, 6),
            ops.ActivationKind.RELU,
        ),
        "causal_conv: RELU is not supported",
    ),
    (lambda v: _delta(v, 2 * 3 + 2 * 5 + 1, v.state(2, 5, 3)), "rows of 17 do not hold v of 2"),
    (lambda v: _delta(v, 2 * 3 + 2 * 5, v.state(2, 257, 3)), "with at most 256 keys"),
    (lambda v: _delta(v, 2 * 3 + 2 * 5, v.state(2, 5, 3), 3), "it must have 2 elements for each"),
    (lambda v: _selective(v, 7, 5), r"is \[tokens, 7\], it must be \[tokens, 6\]"),
    (lambda v: _selective(v, 6, 4), r"is \[tokens, 5\], it must be \[tokens, 4\]"),
    (lambda v: _selective(v, 6, 65), "with at most 64 states"),
    (lambda v: _scan(v, 2 * 3 + 2 * 5 + 1, v.state(2, 5, 3)), "rows of 17 do not hold x of 2"),
    (lambda v: _scan(v, 2 * 3 + 2 * 5, v.cache), r"holds kv \(2, 16\)"),
    (lambda v: _scan(v, 4 * 3 + 2 * 5, v.state(4, 5, 3)), r"a_log \(w0\) must be \[4\], got \[2\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_operands_that_do_not_fit(call: Callable[[Values], object], message: str):
    with pytest.raises(ShapeError, match=message):
        call(Values())
