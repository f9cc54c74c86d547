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
    StateRun,
    TorchCache,
    TorchLatentCache,
    TorchState,
    TorchStep,
    make_step,
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
    groups = _random(2, 5)
    (y,) = _run("rms_norm", x, groups.reshape(10), eps=0.5)
    torch.testing.assert_close(y[:, 1], _run("rms_norm", x[:, 1], groups[1], eps=0.5)[0])
    residual = _random(3, 5, 2).reshape(3, 2, 5)
    y, total = _run("add_rms_norm", x, residual, w, eps=1e-6)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(y, _run("rms_norm", x + residual, w, eps=1e-6)[0])


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


def test_scale():
    x = _random(3, 4)
    torch.testing.assert_close(_run("scale", x, by=-0.5)[0], -x / 2)


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


def _state_step(lengths: list[int], new: list[int], table: list[list[int]]) -> TorchStep:
    """Requests that have `lengths` tokens after a step of `new` ones, in blocks of 4."""
    starts = np.cumsum([0, *new]).astype(np.int32)
    empty = np.zeros(starts[-1], np.int32)
    kv = {
        "block_size": 4,
        "slot_mapping": empty,
        "block_table": np.array(table, np.int32),
    }
    arrays = {"token_ids": empty, "positions": empty, "logits_rows": empty}
    lens = np.array(lengths, np.int32)
    return make_step(arrays | {"query_start": starts, "seq_lens": lens, "kv": [kv]}, DEVICE)


def test_state_runs_end_at_pages_and_at_the_end():
    # One fresh request, one that decodes in its page, one that passes boundaries at 8 (null),
    # and 12.
    step = _state_step([3, 6, 14], [3, 1, 9], [[5, 0, 0, 0], [0, 6, 0, 0], [0, 1, 2, 3]])
    assert list(step.state_runs(0)) == [
        StateRun(0, 5, 0, 3),
        StateRun(6, 6, 3, 4),
        StateRun(1, 1, 4, 7),
        StateRun(1, 2, 7, 11),
        StateRun(2, 3, 11, 13),
    ]


def _conv_by_hand(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    padded = np.concatenate([np.zeros((w.shape[1] - 1, x.shape[1])), x])
    return np.stack([bias + (padded[t : t + w.shape[1]].T * w).sum(1) for t in range(len(x))])


@pytest.mark.parametrize("attributes", [{}, {"kind": 7.0}])
def test_causal_conv_goes_on_from_its_state(attributes: dict[str, float]):
    x, w, bias = _random(7, 5), _random(5, 1, 3), _random(1, 5)[0]
    expected = _conv_by_hand(x.numpy(), w[:, 0].numpy(), bias.numpy())
    if not attributes:
        expected /= 1 + np.exp(-expected)
    pages = torch.full((4, 2, 5), math.nan)
    rows = []
    for begin, end in [(0, 1), (1, 6), (6, 7)]:
        step = _state_step([end], [end - begin], [[2, 3]])
        inputs = [x[begin:end], w, bias, TorchState(pages)]
        rows.append(reference("causal_conv")(inputs, attributes, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(pages[2], x[2:4])
    np.testing.assert_array_equal(pages[3], x[5:7])


def _scan_by_hand(x, dt, a_log, d, b, c):
    """One token and head after the other: y [T, H, P] and the last state [H, N, P]."""
    tokens, heads, head_dim = x.shape
    h = np.zeros((heads, b.shape[2], head_dim))
    y = np.zeros(x.shape)
    for t in range(tokens):
        for i in range(heads):
            group = i // (heads // b.shape[1])
            h[i] *= np.exp(-dt[t, i] * np.exp(a_log[i]))
            h[i] += dt[t, i] * np.outer(b[t, group], x[t, i])
            y[t, i] = c[t, group] @ h[i] + d[i] * x[t, i]
    return y, h


def test_state_space_scan_goes_on_from_its_state():
    tokens, heads, head_dim, groups, states = 45, 4, 3, 2, 5
    inner, side = heads * head_dim, groups * states
    xbc, dt = _random(tokens, inner + 2 * side), _random(tokens, heads)
    a_log, d, bias = _random(3, heads)
    wide = xbc.double().numpy()
    expected, last = _scan_by_hand(
        wide[:, :inner].reshape(tokens, heads, head_dim),
        np.log1p(np.exp((dt + bias).double().numpy())),
        a_log.double().numpy(),
        d.double().numpy(),
        wide[:, inner : inner + side].reshape(tokens, groups, states),
        wide[:, inner + side :].reshape(tokens, groups, states),
    )
    pages = torch.full((14, heads, states, head_dim), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    rows = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step = _state_step([end], [end - begin], table)
        inputs = [xbc[begin:end], dt[begin:end], a_log, d, bias, TorchState(pages)]
        rows.append(reference("state_space_scan")(inputs, {}, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(pages[12].numpy(), last, atol=2e-5)
    assert pages[[2, 8, 9]].isnan().all()


def test_concat_puts_rows_side_by_side():
    x, y = torch.tensor([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]]), torch.tensor([[9.0], [10]])
    (z,) = _run("concat", x, y)
    assert z.tolist() == [[1, 2, 3, 4, 9], [5, 6, 7, 8, 10]]


def test_selective_scan_goes_on_from_its_state():
    tokens, channels, states = 45, 6, 5
    x, dt = _random(tokens, channels), _random(channels, tokens).T
    b, c = _random(tokens, states), _random(states, tokens).T
    a_log, d = _random(channels, states), _random(1, channels)[0]
    bias = _random(channels, 1)[:, 0].flip(0)
    h, expected = np.zeros((states, channels)), np.zeros((tokens, channels))
    wide = [value.double().numpy() for value in (x, dt, b, c, a_log, d, bias)]
    for t in range(tokens):
        steps = np.log1p(np.exp(wide[1][t] + wide[6]))
        h = np.exp(-steps * np.exp(wide[4].T)) * h + np.outer(wide[2][t], steps * wide[0][t])
        expected[t] = wide[3][t] @ h + wide[5] * wide[0][t]
    pages = torch.full((14, states, channels), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    rows = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step = _state_step([end], [end - begin], table)
        of_step = [value[begin:end] for value in (x, dt, b, c)]
        inputs = [*of_step, a_log, d, bias, TorchState(pages)]
        rows.append(reference("selective_scan")(inputs, {}, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(pages[12].numpy(), h, atol=2e-5)
    assert pages[[2, 8, 9]].isnan().all()


def _delta_by_hand(q, k, v, share, decay):
    """One token and head after the other: y [T, H, V] and the last state [H, K, V]."""
    q, k = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    state = np.zeros((v.shape[1], k.shape[2], v.shape[2]))
    y = np.zeros(v.shape)
    for t in range(v.shape[0]):
        for head in range(v.shape[1]):
            s, group = state[head], head // (v.shape[1] // k.shape[1])
            s *= decay[t, head]
            s += np.outer(k[t, group], share[t, head] * (v[t, head] - k[t, group] @ s))
            y[t, head] = q[t, group] @ s / np.sqrt(k.shape[2])
    return y, state


@pytest.mark.parametrize("by_group", [0, 1])
def test_gated_delta_goes_on_from_its_state(by_group):
    tokens, heads, groups, keys, values = 45, 4, 2, 5, 3
    b, a = _random(tokens, heads), _random(heads, tokens).T
    a_log, bias = _random(1, heads), _random(heads, 1).T - 1
    q, k = _random(tokens, groups, keys), _random(groups, tokens, keys).transpose(0, 1)
    v = _random(tokens, heads, values)
    if by_group:
        qkv = torch.cat([q, k, v.reshape(tokens, groups, -1)], -1)
    else:
        qkv = torch.cat([x.reshape(tokens, -1) for x in (q, k, v)], -1)
    wide = [x.double().numpy() for x in (q, k, v, b, a, a_log[0], bias[0])]
    steps = np.log1p(np.exp(wide[4] + wide[6]))
    decay = np.exp(-np.exp(wide[5]) * steps)
    expected, last = _delta_by_hand(*wide[:3], 1.5 / (1 + np.exp(-wide[3])), decay)
    pages = torch.full((14, heads, keys, values), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    rows = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step = _state_step([end], [end - begin], table)
        parts = qkv[begin:end], b[begin:end], a[begin:end]
        inputs = [*parts, a_log[0], bias[0], TorchState(pages)]
        attributes = {"by_group": by_group, "share_scale": 1.5}
        rows.append(reference("gated_delta")(inputs, attributes, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(pages[12].numpy(), last, atol=2e-5)
    assert pages[[2, 8, 9]].isnan().all()


def _attention_by_hand(q, keys, values, visible, distances, attributes, sinks, slopes):
    """Double precision, one head and query at a time."""
    output = np.zeros(q.shape)
    group = q.shape[1] // keys.shape[1]
    soft_cap = attributes["soft_cap"]
    for token in range(q.shape[0]):
        for head in range(q.shape[1]):
            seen = visible[token]
            scores = keys[seen, head // group] @ q[token, head] * attributes["scale"]
            if soft_cap:
                scores = soft_cap * np.tanh(scores / soft_cap)
            if slopes is not None:
                scores = scores + float(slopes[head]) * distances[token, seen]
            weights = np.exp(scores)
            total = weights.sum() + (0 if sinks is None else np.exp(float(sinks[head])))
            output[token, head] = weights / total @ values[seen, head // group]
    return output


@pytest.mark.parametrize(("sinks", "slopes"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    ("window", "causal", "soft_cap"), [(0, 1, 0), (5, 1, 0), (0, 0, 0), (3, 1, 2), (0, 1, 2)]
)
def test_paged_attention_over_shuffled_blocks(window, causal, soft_cap, sinks, slopes):
    block_size, heads, kv_heads, head_dim = 4, 6, 2, 8
    # Three requests: decode at length 11, a chunk of 5 after 6, a whole prompt of 9.
    new, lengths = (1, 5, 9), (11, 11, 9)
    if not causal:
        new, lengths = (1, 5, 9), (1, 5, 9)  # bidirectional prompts run whole
    table = np.array([[7, 2, 5], [1, 9, 3], [8, 4, 6]], np.int32)
    rng = np.random.default_rng(window + soft_cap)
    keys, values = rng.normal(size=(2, 3, 12, kv_heads, head_dim)).astype(np.float32)
    cache = TorchCache(*(torch.full((40, kv_heads, head_dim), 1e6) for _ in range(2)))
    slots = (table[:, :, None] * block_size + np.arange(block_size)).reshape(3, -1)
    for request, length in enumerate(lengths):
        cache.key[slots[request, :length]] = torch.from_numpy(keys[request, :length])
        cache.value[slots[request, :length]] = torch.from_numpy(values[request, :length])
    starts = np.cumsum([0, *new]).astype(np.int32)
    empty = np.zeros(starts[-1], np.int32)
    batch = {
        "token_ids": empty,
        "positions": empty,
        "logits_rows": empty,
        "query_start": starts,
        "seq_lens": np.array(lengths, np.int32),
        "kv": [{"block_size": block_size, "slot_mapping": empty, "block_table": table}],
    }
    q = torch.from_numpy(rng.normal(size=(starts[-1], heads, head_dim)).astype(np.float32))
    attributes = {"scale": 0.4, "window": window, "causal": causal, "soft_cap": soft_cap}
    step = make_step(batch, DEVICE)
    sink_logits = torch.linspace(-2.0, 3.0, heads) if sinks else None
    head_slopes = torch.tensor([0.5**i for i in range(heads)]) if slopes else None
    operands = [q, cache, sink_logits, head_slopes] if sinks or slopes else [q, cache]
    (output,) = reference("paged_attention")(operands, attributes, step)
    for request, length in enumerate(lengths):
        positions = np.arange(length - new[request], length)[:, None]
        key_positions = np.arange(length)
        visible = np.ones((new[request], length), bool)
        if causal:
            visible = key_positions <= positions
            if window:
                visible &= key_positions > positions - window
        rows = slice(starts[request], starts[request + 1])
        expected = _attention_by_hand(
            q[rows].double().numpy(),
            keys[request, :length].astype(float),
            values[request, :length].astype(float),
            visible,
            key_positions - positions,
            attributes,
            sink_logits,
            head_slopes,
        )
        np.testing.assert_allclose(output[rows].numpy(), expected, atol=2e-6, rtol=0)


def test_latent_attention_over_shuffled_blocks():
    """Latents are keys and values of every head; a decoded token, a chunk and a whole prompt."""
    block_size, heads, size, rope_size = 4, 3, 6, 2
    new, lengths = (1, 5, 9), (11, 11, 9)
    table = np.array([[7, 2, 5], [1, 9, 3], [8, 4, 6]], np.int32)
    slots = (table[:, :, None] * block_size + np.arange(block_size)).reshape(3, -1)
    rng = np.random.default_rng(4)
    latents = rng.normal(size=(3, 12, size + rope_size)).astype(np.float32)
    starts = np.cumsum([0, *new]).astype(np.int32)
    writes = [slots[r, length - new[r] : length] for r, length in enumerate(lengths)]
    mapping = np.concatenate(writes).astype(np.int32)
    batch = {
        "token_ids": mapping,
        "positions": mapping,
        "logits_rows": mapping,
        "query_start": starts,
        "seq_lens": np.array(lengths, np.int32),
        "kv": [{"block_size": block_size, "slot_mapping": mapping, "block_table": table}],
    }
    step = make_step(batch, DEVICE)
    cache = TorchLatentCache(torch.full((40, size + rope_size), 1e6))
    rows: list[np.ndarray] = []
    for r, length in enumerate(lengths):
        before = length - new[r]
        cache.rows[slots[r, :before]] = torch.from_numpy(latents[r, :before])
        rows.append(latents[r, before:length])
    written = torch.from_numpy(np.concatenate(rows))
    parts = [written[:, :size], written[:, None, size:], cache]
    assert reference("latent_write")(parts, {}, step) == ()
    q = torch.from_numpy(rng.normal(size=(starts[-1], heads, size)).astype(np.float32))
    rope = torch.from_numpy(rng.normal(size=(starts[-1], heads, rope_size)).astype(np.float32))
    (output,) = reference("latent_attention")([q, rope, cache], {"scale": 0.4}, step)
    for r, length in enumerate(lengths):
        for i in range(new[r]):
            token, seen = starts[r] + i, latents[r, : length - new[r] + i + 1].astype(float)
            for head in range(heads):
                query = torch.cat([q[token, head], rope[token, head]]).double().numpy()
                weights = np.exp(seen @ query * 0.4)
                expected = weights / weights.sum() @ seen[:, :size]
                np.testing.assert_allclose(output[token, head].numpy(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_a_softmax_among_the_tokens_of_a_request(causal: bool):
    spans = [SimpleNamespace(begin=0, end=3), SimpleNamespace(begin=3, end=4)]
    q, k, v = _random(4, 2, 8), _random(4, 1, 8) / 2, _random(4, 1, 8) * 2
    attributes = {"scale": 0.5, "causal": float(causal)}
    (y,) = reference("attention")([q, k, v], attributes, SimpleNamespace(spans=spans))
    for token, head in ((0, 0), (1, 1), (2, 0), (3, 1)):
        begin, end = (0, 3) if token < 3 else (3, 4)
        end = token + 1 if causal else end
        weights = (k[begin:end, 0] @ q[token, head] * 0.5).softmax(0)
        torch.testing.assert_close(y[token, head], weights @ v[begin:end, 0])


def test_scatter_rows():
    x, y = _random(4, 3), _random(2, 3)
    (z,) = _run("scatter_rows", x, y, torch.tensor([2, 0]))
    torch.testing.assert_close(z, torch.stack([y[1], x[1], y[0], x[3]]))
    torch.testing.assert_close(_run("scatter_rows", x, y[:0], torch.zeros(0).long())[0], x)
