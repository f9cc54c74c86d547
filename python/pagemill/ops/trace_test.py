"""Traces: names, groups of caches and types of what ops give, and operands that are not theirs."""

import pytest

from pagemill import ops
from pagemill.ops.trace import ShapeError, Trace
from pagemill.ops.trace_values import Values


def test_a_result_may_have_a_type_of_its_own():
    v = Values()
    y = ops.linear(v.act("tokens", 8), v.weight("f32", 6, 8), dtype="f32")
    assert y.dtype == "f32"
    assert ops.activation(y, ops.ActivationKind.TANH).dtype == "f32"
    with pytest.raises(ShapeError, match=r"must be act, got f32"):
        ops.split(y, 2)


def test_layers_with_one_window_share_a_group():
    trace = Trace()
    assert trace.kv_group() == trace.kv_group()
    assert trace.kv_group(window=8) != trace.kv_group()
    assert [group.name for group in trace.program.groups] == ["full", "sliding_8"]


def test_a_program_that_keeps_its_context_has_windows_in_one_group():
    trace = Trace(keeps_context=True)
    group = trace.kv_group(window=8)
    assert group == trace.kv_group()
    assert trace.cache("kv0", group, (2, 16), window=8).window == 8
    assert trace.declared_cache("kv0").window == 8
    assert trace.cache("kv1", group, (2, 16)).window == 0


def test_a_result_is_renamed_before_it_is_read():
    v = Values()
    x = v.act("tokens", 4)
    renamed = v.trace.name(ops.activation(x, ops.ActivationKind.TANH), "mine")
    ops.activation(renamed, ops.ActivationKind.TANH)
    v.trace.program.check_integrity()
    assert [op.outputs for op in v.trace.program.ops] == [("mine",), ("v1",)]
    for named in (x, renamed):
        with pytest.raises(ValueError, match=f"{named.name} cannot be renamed to other"):
            v.trace.name(named, "other")


def test_a_result_that_is_renamed_after_it_is_read_is_reported():
    v = Values()
    value = ops.activation(v.act("tokens", 4), ops.ActivationKind.TANH)
    ops.activation(value, ops.ActivationKind.TANH)
    v.trace.name(value, "mine")
    with pytest.raises(ValueError, match="reads 'v0' before it is written"):
        v.trace.program.check_integrity()


def test_operands_of_another_trace_are_refused():
    with pytest.raises(ValueError, match="belongs to another trace"):
        ops.add(Values().act("tokens", 4), Values().act("tokens", 4))


def test_constants_must_fill_their_shape():
    with pytest.raises(ValueError, match="5 bytes do not fill"):
        Trace().constant("c", "f32", (2,), b"12345")


def test_a_row_must_be_whole_blocks():
    with pytest.raises(ValueError, match="not a whole number of q4_k blocks"):
        Values().weight("q4_k", 4, 128)
