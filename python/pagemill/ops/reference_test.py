"""The torch references against plain formulas; native kernels must equal the references."""

import math
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pagemill.ops import draw_tokens
from pagemill.ops.table import OPS, reference
from pagemill.ops.torch_step import (
    TorchCache,
)

DEVICE = torch.device("cpu")


def _run(op: str, *inputs: object, **attributes: float) -> tuple[torch.Tensor, ...]:
    return reference(op)(list(inputs), attributes, None)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def test_every_op_has_a_reference():
    assert list(OPS) == sorted(OPS)
    assert all(callable(reference(op)) for op in OPS)
    with pytest.raises(ValueError, match="unknown op 'softmax'; known: activation, add,"):
        reference("softmax")


def test_norms():
    x, w, b = _random(3, 2, 5), _random(5), _random(1, 5)[0]
    (y,) = _run("rms_norm", x, w, eps=0.5, weight_offset=1.0)
    expected = x / torch.sqrt((x * x).sum(-1, keepdim=True) / 5 + 0.5) * (1 + w)
    torch.testing.assert_close(y, expected)
    (y,) = _run("layer_norm", x, w, b, eps=1e-5)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (5,), w, b, 1e-5))
    (y,) = _run("layer_norm", x, w, b, eps=1e-5, weight_offset=1.0)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (5,), w + 1, b, 1e-5))
    groups = _random(2, 5)
    (y,) = _run("rms_norm", x, groups.reshape(10), eps=0.5)
    torch.testing.assert_close(y[:, 1], _run("rms_norm", x[:, 1], groups[1], eps=0.5)[0])
    residual = _random(3, 5, 2).reshape(3, 2, 5)
    y, total = _run("add_rms_norm", x, residual, w, eps=1e-6)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(y, _run("rms_norm", x + residual, w, eps=1e-6)[0])
    y, total, reduced = _run("all_reduce_add_rms_norm", x, residual, w, eps=1e-6, ranks=1)
    torch.testing.assert_close(reduced, x)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(y, _run("rms_norm", x + residual, w, eps=1e-6)[0])


def test_layer_norm_of_groups():
    x, w, b = _random(4, 3, 5), _random(1, 15)[0], _random(1, 15)[0]
    (y,) = _run("layer_norm", x, w, b, eps=1e-5)
    plain = torch.nn.functional.layer_norm(x, (5,), eps=1e-5)
    torch.testing.assert_close(y, plain * w.reshape(3, 5) + b.reshape(3, 5))


def test_tokens_that_stay_on_a_device():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[1.0, 3, 2, 3], [-inf, -inf, -inf, -inf], [0, inf, 1, 2], [5, nan, 1, inf]])
    columns, values = _run("argmax", x)
    assert (columns.dtype, columns.tolist()) == (torch.int32, [1, -1, -1, -1])
    assert values.tolist() == [3, -inf, inf, inf]
    ids = torch.tensor([7, -1, -2, 0], dtype=torch.int32)
    assert _run("take_tokens", ids, columns)[0].tolist() == [7, 1, 0, 0]


def _draws(*rows):
    """Words of rows (temperature, min_p, top_p, top_k, seed, position)."""
    words = []
    for *limits, top_k, seed, position in rows:
        numbers = [top_k, seed & 0xFFFFFFFF, seed >> 32, position]
        words += [*struct.unpack("=7i", struct.pack("=3f4I", *limits, *numbers)), -1]
    return torch.tensor(words, dtype=torch.int32).reshape(len(rows), 8)


def test_tokens_are_drawn_by_philox():
    # Random123's published vector for philox4x32 with 10 rounds, counter and key 0.
    assert draw_tokens._uniform(0, 0) == (0x6627E8D5E169C58D >> 11) * 2.0**-53
    x = torch.tensor([[0.0, 1, 2, -torch.inf, 0.5]])
    columns, values = _run("argmax", x)
    for position in range(50):
        u = draw_tokens._uniform(2**63 + 5, position)
        weights = [math.exp(v / 0.5) for v in (0.0, 1, 2)] + [0, math.exp(1)]
        sums = [sum(weights[: i + 1]) for i in range(5)]
        want = next(i for i in range(5) if sums[i] > u * sums[-1])
        draws = _draws((0.5, 0, 1, 0, 2**63 + 5, position))
        assert _run("draw_tokens", x, columns, values, draws)[0].tolist() == [want]


def test_draws_are_limited():
    nan = torch.nan
    x = torch.tensor([[1.0, 3, 2, 3], [1, 3, 2, 3], [1, 3, 2, 3], [1, 3, 2, 3], [nan, 1, 2, 3]])
    columns, values = _run("argmax", x)
    drawn = [set() for _ in range(5)]
    for seed in range(100):
        rows = [(0, 0, 1, 0), (9, 0, 1, 1), (9, 0, 1e-6, 0), (9, 0.85, 1, 0), (9, 0, 1, 0)]
        draws = _draws(*((*row, seed, 3) for row in rows))
        for row, column in enumerate(_run("draw_tokens", x, columns, values, draws)[0].tolist()):
            drawn[row].add(column)
    assert drawn == [{1}, {1, 3}, {1}, {1, 2, 3}, {-1}]


def test_masks_exclude_tokens():
    x = torch.arange(99.0).reshape(3, 33)
    x[1, 7] = torch.nan
    masks = torch.tensor([[-1, 1], [5, -2]], dtype=torch.int32)
    draws = _draws(*[(0, 0, 1, 0, 0, 0)] * 3)
    draws[:, 7] = torch.tensor([-1, 1, 0])
    (y,) = _run("mask_tokens", x, draws, masks)
    assert torch.equal(y[[0, 2]], x[[0, 2]])
    assert [v for v in range(33) if y[1, v] > -torch.inf or y[1, v].isnan()] == [0, 2, 7]


def test_tokens_are_counted():
    counts = torch.full((3, 4), 5, dtype=torch.int32)
    cleared = torch.tensor([1], dtype=torch.int32)
    changes = torch.tensor([[1, 2, 3], [2, -1, 2], [0, -2, 2]], dtype=torch.int32)
    ids = torch.tensor([3, -1], dtype=torch.int32)
    _run("count_tokens", counts, cleared, changes, ids)
    assert counts.tolist() == [[5, 5, 5, 5], [0, 0, 3, 0], [5, 5, 5, 7]]


def test_logits_are_adjusted():
    x = torch.tensor([[1.0, -2, 4, 8], [1, -2, 4, 8], [1, -2, 4, 8]])
    counts = torch.tensor([[9, 9, 9, 9], [1, 3, 0, 4]], dtype=torch.int32)
    words = struct.pack("=2if2if", 1, 2, -torch.inf, 2, 0, 0.5)
    biases = torch.tensor(struct.unpack("=6i", words), dtype=torch.int32).reshape(2, 3)
    words = struct.pack("=2i3f2i", 2, 1, 2.0, 0.25, 0.125, 1, 2)
    penalties = torch.tensor([struct.unpack("=7i", words)], dtype=torch.int32)
    ids = torch.tensor([2, 1, 4, 2], dtype=torch.int32)
    _run("adjust_logits", x, counts, biases, penalties, ids)
    assert x[:2].tolist() == [[1, -2, 4, 8], [1, -2, -torch.inf, 8]]
    assert x[2].tolist() == [0.75, -4.625, 4, 3.375]


def test_tokens_are_scored():
    x = torch.tensor([[1.0, 3, 2, 3], [5, 5, 5, 5]])
    copies = torch.tensor([[0.0, 0, -torch.inf, 1]])
    columns = torch.tensor([2, -1], dtype=torch.int32)
    scored = torch.tensor([[0, -1, 3, -1], [1, 3, 0, 0], [1, -1, 9, -1]], dtype=torch.int32)
    (y,) = _run("score_tokens", x, copies, columns, scored)
    logprobs = y.view(torch.float32)
    of_x, of_copy = x.log_softmax(1), copies.log_softmax(1)
    torch.testing.assert_close(logprobs[:2, 0], torch.stack([of_x[0, 2], of_copy[0, 3]]))
    assert y[:2, 1].tolist() == [3, 1]
    assert y[0, 2:5].tolist() == [1, 3, 2]
    torch.testing.assert_close(logprobs[0, 22:25], of_x[0, [1, 3, 2]])
    assert y[2, 2:6].tolist() == [0, 1, 2, 3]


def test_scale():
    x = _random(3, 4)
    torch.testing.assert_close(_run("scale", x, by=-0.5)[0], -x / 2)
    positions = torch.tensor([7, 8, 24], dtype=torch.int32)
    factors = torch.tensor([2, 2 + math.log(2), 2 + math.log(4)])
    (y,) = _run("scale", x, positions, by=2.0, growth=0.5, context=8)
    torch.testing.assert_close(y, x * factors[:, None])
    (y,) = _run("scale", x, positions - 1, by=2.0, growth=0.5, context=8, offset=1)
    torch.testing.assert_close(y, x * factors[:, None])


def test_scale_of_groups():
    x, factors = _random(3, 2, 4), _random(3, 2)
    (y,) = _run("scale", x, factors, by=1.0)
    torch.testing.assert_close(y, x * factors[:, :, None])


def test_sparse_relu_keeps_what_is_far_above_the_mean():
    x = torch.tensor([[1.0, 5, 5, 1], [2, 2, 2, 2]])  # means 3 and 2, deviations 2 and 0
    (y,) = _run("sparse_relu", x, deviations=0.5)
    assert y.tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]


def test_embedding_of_ids_outside_its_table():
    table = _random(4, 3)
    (y,) = _run("embedding", torch.tensor([3, 4, -1]), table, outside=2)
    assert torch.equal(y, table[[3, 2, 2]])


def test_linears_of_one_value():
    x, w, u, bias = _random(3, 2, 4), _random(5, 8), _random(7, 8), _random(1, 7)[0]
    rows = x.reshape(3, 8)
    (y,) = _run("linear", x, w)
    torch.testing.assert_close(y, rows @ w.T)
    y, z = _run("linear", x, w, None, u, bias)
    torch.testing.assert_close(y, rows @ w.T)
    torch.testing.assert_close(z, rows @ u.T + bias)


def _route_by_hand(logits, bias, a):
    """One token, with numbers of Python: ids and weights."""
    experts = range(len(logits))
    if a["scoring"] == 0:
        total = sum(math.exp(logit) for logit in logits)
        scores = [math.exp(logit) / total for logit in logits]
    else:
        scores = [1 / (1 + math.exp(-logit)) for logit in logits]
    values = scores if bias is None else [s + b for s, b in zip(scores, bias, strict=True)]
    keys = logits if bias is None else values
    size = len(logits) // a["groups"]
    groups = [range(first, first + size) for first in range(0, len(logits), size)]
    worth = [sum(sorted((values[e] for e in g), reverse=True)[: a["group_top"]]) for g in groups]
    best = sorted(range(len(groups)), key=lambda g: (-worth[g], g))[: a["group_choices"]]
    allowed = [e for e in experts if e // size in best]
    ids = sorted(allowed, key=lambda e: (-keys[e], e))[: a["choices"]]
    total = sum(scores[e] for e in ids) if a["renormalize"] else 1
    return ids, [scores[e] / total * a["scale"] for e in ids]


@pytest.mark.parametrize("scoring", [0, 1])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("renormalize", "scale", "groups", "group_choices", "group_top"),
    [(0, 1, 1, 1, 1), (1, 2.5, 1, 1, 1), (0, 16, 4, 2, 1), (1, 1, 3, 2, 2)],
)
def test_moe_route(scoring, biased, renormalize, scale, groups, group_choices, group_top):
    logits, bias = _random(9, 12), _random(1, 12)[0] * 0.3
    logits[7] = logits[7].round()  # ties
    attributes = {
        "choices": 4,
        "scoring": scoring,
        "renormalize": renormalize,
        "scale": scale,
        "groups": groups,
        "group_choices": group_choices,
        "group_top": group_top,
    }
    ids, weights = _run("moe_route", logits, bias if biased else None, **attributes)
    for n in range(9):
        of_token = logits[n].double().tolist()
        expected_ids, expected = _route_by_hand(
            of_token, bias.double().tolist() if biased else None, attributes
        )
        assert ids[n].tolist() == expected_ids
        np.testing.assert_allclose(weights[n].numpy(), expected, rtol=1e-6)


def test_moe_route_multiplies_weights_by_factors():
    logits, factors = _random(9, 6), _random(1, 6)[0]
    ids, weights = _run("moe_route", logits, None, choices=2, scoring=0, renormalize=1)
    same, scaled = _run("moe_route", logits, None, factors, choices=2, scoring=0, renormalize=1)
    assert torch.equal(same, ids)
    torch.testing.assert_close(scaled, weights * factors[ids.long()])


def test_moe_route_adds_the_bias_to_logits():
    logits, bias = torch.tensor([[0.0, 1.4, 0.7, 1.1]]), torch.tensor([0.5, 0, 0, 0])
    ids, weights = _run("moe_route", logits, bias, choices=2, scoring=1, logits_bias=1)
    assert ids.tolist() == [[1, 3]]
    torch.testing.assert_close(weights, logits[:, [1, 3]].sigmoid())


def test_moe_route_counts_from_the_first_expert_of_a_rank():
    logits = _random(9, 6)
    ids, weights = _run("moe_route", logits, None, choices=3, scoring=0)
    counted, same = _run("moe_route", logits, None, choices=3, scoring=0, first=2)
    assert torch.equal(counted, ids - 2)
    assert torch.equal(same, weights)


def test_moe_route_mixes_choices_with_what_is_near_them():
    """3.8 is within 10 % of 4, 3.5 is not, and is within 10 % of 3.8, the second choice."""
    logits = torch.tensor([[3.5, 4, 3.8, -4], [-1, -5, -1, -1]])
    ids, weights = _run("moe_route", logits, None, choices=2, scoring=2, tolerance=0.1)
    assert ids.tolist() == [[1, 2], [0, 2]]
    expected = [[1 / (1 + math.exp(-0.2)), 1 / (1 + math.exp(-0.3))], [1 / 3, 1 / 2]]
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_moe_route_shows_nan_in_weights_never_in_ids():
    logits = torch.tensor([[math.nan, math.nan, 1, math.nan], [-math.inf, 1, 2, -math.inf]])
    ids, weights = _run("moe_route", logits, None, choices=3, scoring=0)
    assert ids.tolist() == [[2, 0, 1], [2, 1, 0]]
    assert weights[0].isnan().all() and weights[1].isfinite().all()


@pytest.mark.parametrize("shared", [False, True])
def test_grouped_linear(shared):
    ids = torch.tensor([[0, 2], [2, 2], [1, 0], [3, -1], [0, 1]])  # 3 and -1: no expert
    x = _random(5, 6) if shared else _random(5, 2, 6)
    w, u, bias = _random(3, 4, 6), _random(3, 7, 6), _random(3, 7)
    y, z = _run("grouped_linear", x, ids, w, None, u, bias)
    for n in range(5):
        for j in range(2):
            row, e = x[n] if shared else x[n, j], int(ids[n, j])
            exists = 0 <= e < 3
            torch.testing.assert_close(y[n, j], w[e] @ row if exists else torch.zeros(4))
            expected = u[e] @ row + bias[e] if exists else torch.zeros(7)
            torch.testing.assert_close(z[n, j], expected)


def test_moe_combine():
    x, weights = _random(4, 3, 5), _random(4, 3)
    (y,) = _run("moe_combine", x, weights)
    torch.testing.assert_close(y, sum(weights[:, j, None] * x[:, j] for j in range(3)))
    (y,) = _run("moe_combine", x[:, 0], weights)
    torch.testing.assert_close(y, weights.sum(-1, keepdim=True) * x[:, 0])


def test_split():
    x = _random(4, 3, 5)
    a, b = _run("split", x, at=2)
    assert torch.equal(a, x[:, :, :2]) and torch.equal(b, x[:, :, 2:])


def test_head_linear():
    x, w = _random(4, 3, 5), _random(3, 7, 5)
    (y,) = _run("head_linear", x, w)
    (back,) = _run("head_linear", y, w, transposed=1)
    for n in range(4):
        for j in range(3):
            torch.testing.assert_close(y[n, j], w[j] @ x[n, j])
            torch.testing.assert_close(back[n, j], y[n, j] @ w[j])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, lambda x: x / (1 + math.exp(-x))),
        (1, lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
        (2, lambda x: x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        (3, lambda x: max(x, 0.0)),
        (4, math.tanh),
        (7, lambda x: x),
        (8, lambda x: 1 / (1 + math.exp(-x))),
        (9, lambda x: x if x > 0 else math.expm1(x)),
        (10, lambda x: math.log1p(math.exp(x))),
    ],
)
def test_activations(kind, expected):
    x, up = _random(4, 7), _random(7, 4).T
    want = torch.tensor([[expected(float(v)) for v in row] for row in x])
    torch.testing.assert_close(_run("activation", x, kind=kind)[0], want)
    torch.testing.assert_close(_run("gated_activation", x, up, kind=kind)[0], want * up)


def test_gated_activation_rounds_once():
    gate, up = _random(40, 33).bfloat16(), _random(33, 40).reshape(40, 33).bfloat16()
    exact = torch.nn.functional.silu(gate.float()) * up.float()
    (y,) = _run("gated_activation", gate, up, kind=0)
    assert torch.equal(y, exact.bfloat16())


def test_gated_activation_limits_both_operands():
    gate, up = torch.tensor([[3.0, -3, 1, 2]]), torch.tensor([[1.0, 5, -5, 0]])
    (y,) = _run("gated_activation", gate, up, kind=7, limit=2.0, up_offset=1.0)
    assert y.tolist() == [[4, -9, -1, 2]]


def test_activation_limits_its_operand():
    x = torch.tensor([[3.0, -3, 1, math.nan]])
    (y,) = _run("activation", x, kind=7, limit=2.0)
    assert y[0, :3].tolist() == [2, -2, 1]
    assert y[0, 3].isnan()
    (y,) = _run("activation", x, kind=7, limit=2.0, lower=-0.5)
    assert y[0, :3].tolist() == [2, -0.5, 1]


def test_scale_has_a_factor_for_each_column():
    x, factors = _random(4, 3), _random(1, 3)[0]
    torch.testing.assert_close(_run("scale", x, factors, by=2.0)[0], x * factors * 2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_turns_pairs_as_complex_numbers(interleaved):
    q, k, positions = _random(3, 2, 10), _random(3, 1, 10), torch.tensor([0, 5, 1000])
    frequencies = torch.tensor([1.0, 0.3, 0.01])  # the first 6 of 10 dimensions turn
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + 3) for i in range(3)]
    rotated = _run("rotary", q, k, positions, frequencies, interleaved=interleaved, mscale=1.5)
    for x, y in zip((q, k), rotated, strict=True):
        expected = x.clone()
        for token, position in enumerate(positions.tolist()):
            for (a, b), frequency in zip(pairs, frequencies.tolist(), strict=True):
                turn = 1.5 * np.exp(1j * position * frequency)
                z = (x[token, :, a].numpy() + 1j * x[token, :, b].numpy()) * turn
                expected[token, :, a], expected[token, :, b] = map(
                    torch.from_numpy, (z.real.astype(np.float32), z.imag.astype(np.float32))
                )
        torch.testing.assert_close(y, expected, atol=2e-4, rtol=0)  # f32 angles up to 1000


def test_rotary_kv_write_stores_the_rotated_keys():
    q, k, v = _random(3, 2, 8), _random(3, 1, 8), _random(1, 3, 8).reshape(3, 1, 8)
    positions, frequencies = torch.tensor([4, 5, 0]), torch.tensor([1.0, 0.3])
    slots = torch.tensor([9, 2, 4])
    cache = TorchCache(torch.zeros(12, 1, 8), torch.zeros(12, 1, 8))
    inputs = [q, k, positions, frequencies, v, cache]
    step = SimpleNamespace(tables=[SimpleNamespace(slot_mapping=slots)])
    rotated = reference("rotary_kv_write")(inputs, {"mscale": 1.5}, step)
    for ours, theirs in zip(
        rotated, _run("rotary", q, k, positions, frequencies, mscale=1.5), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    torch.testing.assert_close(cache.key[slots], rotated[1], atol=0, rtol=0)
    torch.testing.assert_close(cache.value[slots], v, atol=0, rtol=0)


def test_kv_write_of_narrow_values():
    k, v, slots = _random(2, 3, 4), _random(2, 3, 2), torch.tensor([5, 1])
    cache = TorchCache(torch.full((6, 3, 4), 9.0), torch.full((6, 3, 4), 9.0))
    step = SimpleNamespace(tables=[SimpleNamespace(slot_mapping=slots)])
    reference("kv_write")([k, v, cache], {}, step)
    assert torch.equal(cache.key[slots], k)
    assert torch.equal(cache.value[slots, :, :2], v)
    assert not cache.value[slots, :, 2:].any()


def test_concat_puts_rows_side_by_side():
    x, y = torch.tensor([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]]), torch.tensor([[9.0], [10]])
    (z,) = _run("concat", x, y)
    assert z.tolist() == [[1, 2, 3, 4, 9], [5, 6, 7, 8, 10]]


def test_streams_are_mixed_by_a_matrix_of_shares():
    mixes, base, scale = _random(5, 24), _random(1, 24)[0], torch.tensor([0.5, 0.7, 0.9])
    attributes = {"iterations": 50.0, "eps": 1e-6}
    before, after = reference("stream_weights")([mixes, base, scale], attributes, None)
    torch.testing.assert_close(before, (mixes[:, :4] * 0.5 + base[:4]).sigmoid(), atol=1e-5, rtol=0)
    shares, ones = after[..., :4], torch.ones(5, 4)
    torch.testing.assert_close(shares.sum(1), ones, atol=1e-4, rtol=0)
    torch.testing.assert_close(shares.sum(2), ones, atol=1e-4, rtol=0)
    x, y = _random(5, 12), _random(5, 3)
    (mixed,) = reference("mix_streams")([x, after, y], {}, None)
    by_stream = x.reshape(5, 4, 3)
    expected = torch.einsum("tmn,tnw->tmw", shares, by_stream) + after[..., 4:] * y[:, None]
    torch.testing.assert_close(mixed, expected.flatten(1))
    (read,) = reference("mix_streams")([x, before], {}, None)
    torch.testing.assert_close(read, (before[..., None] * by_stream).sum(1))


def test_rotary_rotates_a_part_by_another_position():
    q, positions, inv_freq = _random(4, 2, 8), torch.tensor([5, 6, 7, 9]), torch.tensor([0.5, 0.1])
    attributes = {"interleaved": 1.0}
    part = q[..., 3:7]
    (expected, _) = reference("rotary")([part, part, positions - 5, inv_freq], attributes, None)
    shifted = attributes | {"begin": 3.0, "offset": -5.0}
    (y, _) = reference("rotary")([q, q, positions, inv_freq], shifted, None)
    torch.testing.assert_close(y, torch.cat([q[..., :3], expected, q[..., 7:]], -1))


def test_a_table_chooses_the_experts_of_a_token():
    logits, table = _random(4, 5), torch.tensor([[3.0, 1], [0, 4], [2, 7]])
    attributes = {"choices": 2.0, "scoring": 3.0, "renormalize": 1.0, "scale": 2.0}
    inputs = [logits, None, None, torch.tensor([1, 0, 2, 1]), table]
    ids, weights = reference("moe_route")(inputs, attributes, None)
    assert ids[:2].tolist() == [[0, 4], [3, 1]]
    scores = torch.nn.functional.softplus(logits[0, [0, 4]]).sqrt()
    torch.testing.assert_close(weights[0], 2 * scores / scores.sum())
    assert weights[2].isnan().all()  # of an expert that does not exist


def test_scatter_rows():
    x, y = _random(4, 3), _random(2, 3)
    (z,) = _run("scatter_rows", x, y, torch.tensor([2, 0]))
    torch.testing.assert_close(z, torch.stack([y[1], x[1], y[0], x[3]]))
    torch.testing.assert_close(_run("scatter_rows", x, y[:0], torch.zeros(0).long())[0], x)
