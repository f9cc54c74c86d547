"""Counts of necessary work against counts by hand."""

from dataclasses import replace

from pagemill import ops
from pagemill.ops.trace import Trace

from tools.gpu.work import decode_bytes, prefill_operations


def _trace(window: int) -> Trace:
    trace = Trace()
    ids = trace.input("token_ids", "i32", ("tokens",))
    table = trace.weight("embed", "bf16", (100, 8), file=trace.file("f"), offset=0)
    square = trace.weight("w", "bf16", (8, 8), file=0, offset=1600)
    head = trace.weight("head", "bf16", (100, 8), file=0, offset=1728)
    x = ops.linear(ops.embedding(ids, table), square, row_shape=(2, 4))
    cache = trace.cache("kv", trace.kv_group(window), (2, 4))
    ops.kv_write(x, x, cache)
    x = ops.paged_attention(x, cache, scale=1)
    x = ops.linear(x, square)
    rows = trace.input("logits_rows", "i32", ("logits_rows",))
    trace.output("logits", ops.linear(ops.select_rows(x, rows), head, dtype="f32"))
    return trace


def test_full_attention():
    program = _trace(0).program
    linear = 2 * (2 * 10 * 64) + 2 * 800
    # 10 queries see 55 keys; half of 10 x 10 is counted. 2 heads of 4: 4 operations a number.
    assert prefill_operations(program, 10) == linear + 4 * 2 * 4 * 50
    # The square matrix is read once though it is used twice; the embedding is not read through.
    assert decode_bytes(program, 3, 10) == 2 * (64 + 800 + 3 * 2 * 2 * 4 * 10)


def test_a_window_bounds_both():
    program = _trace(4).program
    linear = 2 * (2 * 10 * 64) + 2 * 800
    assert prefill_operations(program, 10) == linear + 4 * 2 * 4 * (8 + 6 * 4)
    assert decode_bytes(program, 1, 10) == 2 * (64 + 800 + 2 * 2 * 4 * 4)


def test_every_matrix_of_a_fused_product_counts():
    program = _trace(0).program
    alone = decode_bytes(program, 1, 10), prefill_operations(program, 10)
    index = next(i for i, op in enumerate(program.ops) if op.op == "linear")
    op = program.ops[index]
    # As the rewriter joins products of one input.
    program.ops[index] = replace(op, inputs=(*op.inputs[:2], None, "head", None))
    fused = decode_bytes(program, 1, 10), prefill_operations(program, 10)
    assert fused == (alone[0], alone[1] + 2 * 10 * 800)
