"""Ops return the shapes of their contract, and reject operands that violate it."""

from collections.abc import Callable
from typing import Any

import pytest

from pagemill import ops
from pagemill.ops.shard import Shard
from pagemill.ops.trace import ShapeError, Tensor
from pagemill.ops.trace_values import Values

GOOD: list[tuple[Callable[[Values], Tensor], tuple[int | str, ...]]] = [
    (lambda v: ops.embedding(v.i32("tokens"), v.weight("q4_k", 9, 256)), ("tokens", 256)),
    (lambda v: ops.add(v.act("tokens", 4), v.act("tokens", 4)), ("tokens", 4)),
    (lambda v: ops.add(v.act("tokens", 4), v.weight("f32", 4)), ("tokens", 4)),
    (lambda v: ops.all_reduce(v.act("tokens", 4), shard=Shard(0, 2)), ("tokens", 4)),
    (lambda v: ops.all_gather(v.act("logits_rows", 5), 9, shard=Shard(1, 2)), ("logits_rows", 9)),
    (lambda v: ops.rms_norm(v.act("tokens", 3, 8), v.weight("f32", 8), eps=1), ("tokens", 3, 8)),
    (lambda v: ops.rms_norm(v.act("tokens", 3, 8), v.weight("f32", 24), eps=1), ("tokens", 3, 8)),
    (lambda v: ops.scale(v.act("tokens", 4), 0.5), ("tokens", 4)),
    (lambda v: ops.scale_groups(v.act("tokens", 3, 8), v.f32("tokens", 3)), ("tokens", 3, 8)),
    (lambda v: ops.sparse_relu(v.act("tokens", 4), deviations=1.6), ("tokens", 4)),
    (
        lambda v: ops.concat(v.act("tokens", 4), v.act("tokens", 4), row_shape=(2, 4)),
        ("tokens", 2, 4),
    ),
    (
        lambda v: ops.embedding(v.i32("tokens"), v.weight("f32", 9, 4), outside=8),
        ("tokens", 4),
    ),
    (
        lambda v: ops.layer_norm(v.act("tokens", 8), v.weight("f32", 8), v.weight("f32", 8), eps=1),
        ("tokens", 8),
    ),
    (lambda v: ops.linear(v.act("tokens", 2, 16), v.weight("q4_0", 6, 32)), ("tokens", 6)),
    (
        lambda v: ops.linear(v.act("logits_rows", 8), v.weight("f16", 6, 8), v.weight("f32", 6)),
        ("logits_rows", 6),
    ),
    (
        lambda v: ops.linear(v.act("tokens", 8), v.weight("f32", 6, 8), row_shape=(3, 2)),
        ("tokens", 3, 2),
    ),
    (
        lambda v: ops.linear(v.act("tokens", 8), v.scaled("i8", (6, 8), (1, 8)), row_shape=(2, 3)),
        ("tokens", 2, 3),
    ),
    (
        lambda v: ops.linear(v.act("logits_rows", 2, 9), v.scaled("f8_e4m3", (7, 18), (4, 8))),
        ("logits_rows", 7),
    ),
    (lambda v: ops.paged_attention(v.act("tokens", 6, 16), v.cache, scale=1), ("tokens", 6, 16)),
    (
        lambda v: ops.paged_attention(
            v.act("tokens", 6, 16),
            v.cache,
            scale=1,
            sinks=v.weight("f32", 6),
            slopes=v.weight("f32", 6),
        ),
        ("tokens", 6, 16),
    ),
    (lambda v: ops.activation(v.act("tokens", 5), ops.ActivationKind.TANH), ("tokens", 5)),
    (
        lambda v: ops.gated_activation(
            v.act("tokens", 5), v.act("tokens", 5), ops.ActivationKind.SILU
        ),
        ("tokens", 5),
    ),
    (
        lambda v: ops.grouped_linear(
            v.act("tokens", 64), v.i32("tokens", 2), v.weight("q4_0", 3, 6, 64)
        )[0],
        ("tokens", 2, 6),
    ),
    (
        lambda v: ops.grouped_linear(
            v.act("tokens", 2, 8),
            v.i32("tokens", 2),
            v.weight("f32", 3, 6, 8),
            biases=[v.weight("f32", 3, 6)],
        )[0],
        ("tokens", 2, 6),
    ),
    (lambda v: ops.moe_combine(v.act("tokens", 3, 8), v.f32("tokens", 3)), ("tokens", 8)),
    (lambda v: ops.moe_combine(v.act("tokens", 8), v.f32("tokens", 3)), ("tokens", 8)),
    (
        lambda v: ops.head_linear(v.act("tokens", 3, 32), v.weight("q8_0", 3, 7, 32)),
        ("tokens", 3, 7),
    ),
    (
        lambda v: ops.head_linear(
            v.act("tokens", 3, 7), v.weight("q8_0", 3, 7, 32), transposed=True
        ),
        ("tokens", 3, 32),
    ),
    (
        lambda v: ops.latent_attention(
            v.act("tokens", 3, 32), v.act("tokens", 3, 8), v.latents, scale=1
        ),
        ("tokens", 3, 32),
    ),
    (
        lambda v: ops.latent_attention(
            v.act("tokens", 3, 32),
            v.act("tokens", 3, 8),
            v.latents,
            scale=1,
            chosen=v.i32("tokens", 5),
        ),
        ("tokens", 3, 32),
    ),
    (lambda v: ops.split(v.act("tokens", 3, 8), 6)[0], ("tokens", 3, 6)),
    (lambda v: ops.split(v.act("tokens", 3, 8), 6)[1], ("tokens", 3, 2)),
    (lambda v: ops.split(v.act("tokens", 3, 8), 6, row_shapes=((9, 2), None))[0], ("tokens", 9, 2)),
    (lambda v: ops.split(v.act("tokens", 3, 8), 6, row_shapes=((9, 2), None))[1], ("tokens", 3, 2)),
    (lambda v: ops.select_rows(v.act("tokens", 5), v.i32("logits_rows")), ("logits_rows", 5)),
    (lambda v: ops.select_rows(v.act("tokens", 2, 3), v.i32("logits_rows")), ("logits_rows", 6)),
    (
        lambda v: ops.scatter_rows(v.act("tokens", 5), v.act("media_rows", 5), v.i32("media_rows")),
        ("tokens", 5),
    ),
    (
        lambda v: ops.scatter_rows(
            v.act("tokens", 6), v.act("text_rows", 2, 3), v.i32("text_rows")
        ),
        ("tokens", 2, 3),
    ),
    (
        lambda v: ops.attention(
            v.act("tokens", 4, 8),
            v.act("tokens", 2, 8),
            v.act("tokens", 2, 8),
            scale=1,
            causal=False,
        ),
        ("tokens", 4, 8),
    ),
    (
        lambda v: _attention(
            v,
            3,
            biases=v.f32("tokens", 3, 2, 7),
            column_biases=v.weight("f32", 2, 3),
            grid_columns=4,
        ),
        ("tokens", 3, 2, 8),
    ),
    (
        lambda v: _attention(v, key_biases=v.f32("tokens", 2, 7)),
        ("tokens", 2, 8),
    ),
    (lambda v: _attention(v, 3, soft_cap=50.0, sinks=v.f32(2)), ("tokens", 3, 2, 8)),
    (lambda v: ops.pool(v.act("tokens", 5), ops.PoolKind.LAST, normalize=True), ("requests", 5)),
]


@pytest.mark.parametrize(("call", "shape"), GOOD)
def test_result_shapes(call: Callable[[Values], Tensor], shape: tuple[int | str, ...]):
    values = Values()
    result = call(values)
    assert result.shape == shape
    assert result.dtype == ("f32" if shape[0] == "requests" else "act")
    values.trace.program.check_integrity()


def test_rotary_keeps_the_shapes_of_q_and_k():
    v = Values()
    q, k = ops.rotary(
        v.act("tokens", 4, 8), v.act("tokens", 2, 8), v.i32("tokens"), v.weight("f32", 3)
    )
    assert (q.shape, k.shape) == (("tokens", 4, 8), ("tokens", 2, 8))


def test_select_tokens_returns_positions():
    v = Values()
    chosen = ops.select_tokens(
        v.act("tokens", 3, 32), v.act("tokens", 3, 8), v.f32("tokens", 3), v.latents, choices=5
    )
    assert (chosen.shape, chosen.dtype) == (("tokens", 5), "i32")


def test_a_router_gives_ids_and_weights():
    v = Values()
    routing = ops.Routing(2, ops.Scoring.SIGMOID, groups=2, group_choices=1, group_top=2)
    ids, weights = ops.moe_route(v.f32("tokens", 8), routing, v.weight("f32", 8))
    assert [(t.shape, t.dtype) for t in (ids, weights)] == [
        (("tokens", 2), "i32"),
        (("tokens", 2), "f32"),
    ]
    assert dict(v.trace.program.ops[0].attributes) == {
        "choices": 2,
        "scoring": 1,
        "groups": 2,
        "group_choices": 1,
        "group_top": 2,
    }


def test_ids_count_from_the_first_expert_of_a_rank():
    v = Values()
    ops.moe_route(v.f32("tokens", 8), ops.Routing(2), first=4)
    assert dict(v.trace.program.ops[0].attributes)["first"] == 4


def test_concat_has_the_width_of_all():
    v = Values()
    y = ops.concat(v.act("tokens", 2, 3), v.act("tokens", 4), v.act("tokens", 1))
    assert (y.shape, y.dtype) == (("tokens", 11), "act")


def _attention(v: Values, *rows: int, causal: bool = False, **options: Any) -> Tensor:
    operands = (v.act("tokens", *rows, 2, 8) for _ in range(3))
    return ops.attention(*operands, scale=1, causal=causal, **options)


def test_head_linear_in_f32():
    v = Values()
    y = ops.head_linear(v.act("tokens", 3, 32), v.weight("f32", 3, 7, 32), dtype="f32")
    assert (y.shape, y.dtype) == (("tokens", 3, 7), "f32")


def _paged_attention(v: Values, **options: Any) -> Tensor:
    return ops.paged_attention(v.act("tokens", 6, 16), v.cache, scale=1, **options)


def test_a_layer_of_streams_and_compressed_rows():
    v = Values()
    rows = v.trace.cache("rows", v.trace.kv_group(), (16, 4), layout="latent")
    x, gate, bias = v.act("tokens", 32), v.act("tokens", 32), v.weight("f32", 4, 32)
    y = ops.compress_tokens(x, gate, bias, v.state(2, 3, 16))
    assert y.shape == ("tokens", 16)
    ops.latent_write(y, None, rows)
    q = v.act("tokens", 3, 16)
    attended, sums = ops.latent_attention_with_sums(q, None, rows, scale=1)
    assert (attended.shape, sums.shape, sums.dtype) == (q.shape, ("tokens", 3), "f32")
    merged = ops.merge_attention(v.weight("f32", 3), (attended, sums), row_shape=(48,))
    assert merged.shape == ("tokens", 48)
    before, after = ops.stream_weights(
        v.f32("tokens", 15), v.weight("f32", 15), v.weight("f32", 3), iterations=2, eps=0
    )
    assert (before.shape, after.shape) == (("tokens", 3), ("tokens", 3, 4))
    assert ops.mix_streams(v.act("tokens", 48), before).shape == ("tokens", 16)
    assert ops.mix_streams(v.act("tokens", 48), after, v.act("tokens", 16)).width == 48


BAD: list[tuple[Callable[[Values], object], str]] = [
    (
        lambda v: ops.merge_attention(None, (v.act("tokens", 3, 8), v.f32("tokens", 2))),
        r"\[tokens, 3, 8\], x1 \[tokens, 2\]",
    ),
    (
        lambda v: ops.stream_weights(
            v.f32("tokens", 16), v.weight("f32", 16), v.weight("f32", 3), iterations=1, eps=0
        ),
        "rows of 16 are of no number of streams",
    ),
    (
        lambda v: ops.mix_streams(v.act("tokens", 9), v.f32("tokens", 2)),
        r"do not fit: \[tokens, 9\], \[tokens, 2\]",
    ),
    (
        lambda v: ops.scale_columns(v.act("tokens", 6), v.weight("f32", 5)),
        "factors",
    ),
    (
        lambda v: _attention(v, biases=v.weight("f32", 2, 4)),
        "biases are .* odd number of distances",
    ),
    (lambda v: ops.embedding(v.act("tokens"), v.weight("f32", 9, 4)), "ids .* is act"),
    (
        lambda v: ops.embedding(v.i32("tokens"), v.weight("i8", 9, 4)),
        "weight .* is i8; expected bf16",
    ),
    (
        lambda v: ops.add(v.act("tokens", 4), v.act("logits_rows", 4)),
        r"\[tokens, 4\] but .* \[logits_rows, 4\]",
    ),
    (lambda v: ops.add(v.act("tokens", 4), v.weight("f32", 5)), r"must be \[4\], got \[5\]"),
    (lambda v: ops.add(v.act("tokens", 4), v.weight("bf16", 4)), "must be f32, got bf16"),
    (
        lambda v: ops.all_gather(v.act("logits_rows", 4), 9, shard=Shard(1, 2)),
        "has 5 of 9 columns, x0 has 4",
    ),
    (lambda v: ops.rms_norm(v.act("tokens", 8), v.weight("f32", 4), eps=1), r"must be \[8\]"),
    (lambda v: ops.rms_norm(v.act("tokens", 2, 8), v.weight("f32", 2, 8), eps=1), r"must be \[8\]"),
    (lambda v: ops.scale(v.weight("bf16", 4), 2.0), r"is bf16; expected act, f32"),
    (
        lambda v: ops.scale_groups(v.act("tokens", 3, 8), v.f32("tokens", 2)),
        "must have one for each group of a row",
    ),
    (
        lambda v: ops.sparse_relu(v.act("tokens", 2, 8), deviations=1.0),
        r"sparse_relu: x \(x0\) must have rank 2",
    ),
    (
        lambda v: ops.concat(v.act("tokens", 4), v.act("tokens", 4), row_shape=(3, 2)),
        r"rows of 8 do not fit \(3, 2\)",
    ),
    (
        lambda v: ops.embedding(v.i32("tokens"), v.weight("f32", 9, 4), outside=9),
        "embedding: w0 has no row 9",
    ),
    (
        lambda v: ops.rms_norm(v.act("tokens", 8), v.weight("f32", 8), eps=1, row_shape=(3, 2)),
        r"rows of 8 of x0 do not fit \(3, 2\)",
    ),
    (
        lambda v: ops.gated_activation(
            v.act("tokens", 6), v.act("tokens", 6), ops.ActivationKind.SILU, up_offset=1.0
        ),
        "up_offset needs a limit",
    ),
    (lambda v: ops.concat(v.act("tokens", 4)), "1 values; it takes 2 to 8"),
    (
        lambda v: ops.concat(v.act("tokens", 4), v.act("logits_rows", 4)),
        "their rows must be the same",
    ),
    (
        lambda v: ops.linear(v.act("tokens", 8), v.weight("f32", 6, 4)),
        "rows of 8, weight w0 takes 4",
    ),
    (
        lambda v: ops.linear(v.act("tokens", 8), v.weight("f32", 6, 8), row_shape=(4, 2)),
        r"do not fit \(4, 2\)",
    ),
    (lambda v: ops.linear(v.act("tokens", 8), v.weight("f32", 6, 8), v.weight("f32", 8)), "bias"),
    (
        lambda v: ops.linear(v.act("tokens", 8), v.weight("i8", 6, 8)),
        "weight \\(w0\\) is i8; expected bf16, f16, f32, iq1_m",
    ),
    (
        lambda v: ops.embedding(v.i32("tokens"), v.scaled("i8", (6, 8), (1, 8))),
        r"weight \(w2\) has scales, which embedding does not take",
    ),
    (
        lambda v: ops.kv_write(v.act("tokens", 2, 8), v.act("tokens", 2, 8), v.cache),
        r"holds kv \(2, 16\)",
    ),
    (
        lambda v: ops.kv_write(v.act("tokens", 2, 16), v.act("tokens", 2, 17), v.cache),
        "v must have as many heads, of at most as many elements",
    ),
    (
        lambda v: ops.paged_attention(v.act("tokens", 5, 16), v.cache, scale=1),
        r"holds kv \(2, 16\)",
    ),
    (lambda v: _paged_attention(v, sinks=v.weight("f32", 5)), "sinks .* must be .6."),
    (lambda v: _paged_attention(v, slopes=v.weight("f32", 2)), "slopes .* must be .6."),
    (
        lambda v: ops.rotary(
            v.act("tokens", 2, 8), v.act("tokens", 2, 8), v.i32("tokens"), v.weight("f32", 5)
        ),
        "5 frequencies do not fit heads of 8",
    ),
    (
        lambda v: ops.grouped_linear(
            v.act("tokens", 9), v.i32("tokens", 2), v.weight("f32", 3, 6, 8)
        ),
        "rows of 9, w0 takes 8, or 2 times that",
    ),
    (
        lambda v: ops.grouped_linear(
            v.act("tokens", 8),
            v.i32("tokens", 2),
            v.weight("f32", 3, 6, 8),
            v.weight("f32", 4, 6, 8),
        ),
        r"w0 is f32 \[3, \d+, \d+\], w1 is f32 \[4",
    ),
    (
        lambda v: ops.grouped_linear(
            v.act("tokens", 8),
            v.i32("tokens", 2),
            v.weight("f32", 3, 6, 8),
            biases=[v.weight("f32", 6)],
        ),
        r"bias of w0 must be f32 \[3, 6\], got f32 \[6\]",
    ),
    (
        lambda v: ops.moe_combine(v.act("tokens", 3, 8), v.f32("tokens", 2)),
        r"is \[tokens, 3, 8\], its weights \[tokens, 2\]",
    ),
    (lambda v: ops.moe_route(v.act("tokens", 4), ops.Routing(2)), "logits .* is act"),
    (lambda v: ops.moe_route(v.f32("tokens", 4), ops.Routing(5)), "cannot choose 5 of 4 experts"),
    (lambda v: ops.moe_route(v.f32("tokens", 4), ops.Routing(2), first=4), "from expert 4 of 4"),
    (
        lambda v: ops.moe_route(
            v.f32("tokens", 4), ops.Routing(2, ops.Scoring.SPARSE_MIXER, groups=2)
        ),
        "SparseMixer has no groups",
    ),
    (lambda v: _paged_attention(v, chunked=True), "chunks need a cache with a window"),
    (
        lambda v: _paged_attention(v, encoder_keys=True, decoder_keys=True),
        "either encoder_keys or decoder_keys",
    ),
    (lambda v: _paged_attention(v, causal=False, decoder_keys=True), "without a window and causal"),
    (lambda v: _paged_attention(v, item_ends=True, encoder_keys=True), "item_ends needs causal"),
    (lambda v: _paged_attention(v, biases=v.f32(6, 4)), "must be 6 rows of an odd number"),
    (
        lambda v: ops.moe_route(v.f32("tokens", 4), ops.Routing(3, groups=2, group_choices=1)),
        "cannot choose 3 of 2 experts",
    ),
    (
        lambda v: ops.moe_route(v.f32("tokens", 4), ops.Routing(1, groups=3)),
        "4 experts do not make 3 groups",
    ),
    (
        lambda v: ops.head_linear(v.act("tokens", 3, 7), v.weight("f32", 3, 7, 5)),
        r"x is \[tokens, 3, 7\], weight w0 is \[3, 7, 5\]",
    ),
    (
        lambda v: ops.head_linear(v.act("tokens", 2, 7), v.weight("f32", 3, 7, 5), transposed=True),
        r"weight w0 is \[3, 7, 5\], transposed",
    ),
    (
        lambda v: ops.latent_write(v.act("tokens", 32), v.act("tokens", 1, 9), v.latents),
        r"latents holds latent \(40,\), latent and rope are \[tokens, 32\] and \[tokens, 1, 9\]",
    ),
    (
        lambda v: ops.latent_write(v.act("tokens", 24), v.act("tokens", 1, 8), v.cache),
        "kv holds kv",
    ),
    (
        lambda v: ops.latent_attention(
            v.act("tokens", 3, 32), v.act("tokens", 2, 8), v.latents, scale=1
        ),
        r"q and rope are \[tokens, 3, 32\] and \[tokens, 2, 8\]",
    ),
    (
        lambda v: ops.latent_attention(
            v.act("tokens", 3, 32),
            v.act("tokens", 3, 8),
            v.latents,
            scale=1,
            chosen=v.i32("logits_rows", 5),
        ),
        r"chosen \[logits_rows, 5\]",
    ),
    (
        lambda v: ops.select_tokens(
            v.act("tokens", 3, 32), v.act("tokens", 3, 8), v.f32("tokens", 2), v.latents, choices=5
        ),
        r"q, rope and weights are .* \[tokens, 2\]",
    ),
    (lambda v: ops.split(v.f32("tokens", 8), 6), "must be act, got f32"),
    (lambda v: ops.split(v.act("tokens", 3, 8), 8), r"\[tokens, 3, 8\] cannot be cut at 8"),
    (
        lambda v: ops.split(v.act("tokens", 3, 8), 6, row_shapes=(None, (7,))),
        r"rows of 6 of .* do not fit \(7,\)",
    ),
    (lambda v: ops.select_rows(v.act("tokens", 5), v.act("logits_rows")), "rows .* is act"),
    (
        lambda v: ops.scatter_rows(v.act("tokens", 5), v.act("tokens", 5), v.i32("media_rows")),
        r"y \[tokens, 5\], rows \[media_rows\]",
    ),
    (
        lambda v: ops.attention(
            v.act("tokens", 4, 8),
            v.act("tokens", 3, 8),
            v.act("tokens", 3, 8),
            scale=1,
            causal=False,
        ),
        r"q is \[tokens, 4, 8\], k and v are \[tokens, 3, 8\]",
    ),
    (lambda v: _attention(v, grid_window=8), "grid_window needs .* the input grid_positions"),
    (lambda v: _attention(v, chunked=True), "chunked needs a window"),
    (lambda v: _attention(v, prefix=2), "prefix causal attention without a window"),
    (
        lambda v: _attention(v, causal=True, prefix=2, window=3),
        "prefix causal attention without a window",
    ),
    (
        lambda v: _attention(v, biases=v.weight("f32", 2, 3), grid_columns=4),
        "biases, column_biases and grid_columns belong together",
    ),
    (
        lambda v: _attention(v, 3, biases=v.f32("tokens", 2, 3)),
        "biases are .* 2 rows of an odd number of distances, or as many of each query",
    ),
    (
        lambda v: _attention(v, key_biases=v.weight("f32", 2, 3)),
        r"key_biases are \[2, 3\], they must be of each row and head of q, \[tokens, 2\]",
    ),
    (
        lambda v: _attention(
            v,
            biases=v.weight("f32", 2, 3),
            column_biases=v.weight("f32", 2, 3),
            grid_columns=4,
            key_biases=v.f32("tokens", 2, 7),
        ),
        "without grid_columns",
    ),
    (lambda v: _attention(v, sinks=v.f32(3)), "sinks"),
    (lambda v: ops.pool(v.act("tokens", 5, 2), ops.PoolKind.MEAN, normalize=False), "rank 2"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_operands_that_do_not_fit(call: Callable[[Values], object], message: str):
    with pytest.raises(ShapeError, match=message):
        call(Values())
