"""The torch references of ops with recurrent states against plain formulas."""

import math

import numpy as np
import pytest
import torch

from pagemill.ops.table import reference
from pagemill.ops.torch_step import StateRun, TorchState, TorchStep, make_step

DEVICE = torch.device("cpu")


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def _state_step(
    lengths: list[int], new: list[int], table: list[list[int]], recent_states: int = 0
) -> TorchStep:
    """Requests that have `lengths` tokens after a step of `new` ones, in blocks of 4."""
    starts = np.cumsum([0, *new]).astype(np.int32)
    empty = np.zeros(starts[-1], np.int32)
    kv = {
        "block_size": 4,
        "recent_states": recent_states,
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


def test_state_runs_keep_the_newest_states():
    # Pages 7, 8, 9 of states after 3n, 3n + 1, 3n + 2 tokens, then the positions: a page at 8 only.
    table = [[7, 8, 9, 0, 3, 0, 4]] * 3
    step = _state_step([7, 9, 14], [3, 2, 14], table, recent_states=3)
    assert list(step.state_runs(0)) == [
        StateRun(8, 9, 0, 1),
        StateRun(9, 7, 1, 2),
        StateRun(7, 8, 2, 3),
        StateRun(8, 3, 3, 4),
        StateRun(3, 7, 4, 5),
        StateRun(0, 3, 5, 13),
        StateRun(3, 7, 13, 17),
        StateRun(7, 8, 17, 18),
        StateRun(8, 9, 18, 19),
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


def test_wkv_is_a_weighted_mean_of_values():
    tokens, channels = 20, 4
    key, value = 2 * _random(tokens, channels), _random(channels, tokens).T
    decay, first = _random(1, channels)[0], _random(channels, 1)[:, 0]
    expected = np.zeros((tokens, channels))
    for t in range(tokens):
        ages = np.arange(t - 1, -1, -1)[:, None]
        exponents = key[:t].double().numpy() - ages * np.exp(decay.double().numpy())
        now = (first + key[t]).double().numpy()
        weights = np.exp(np.concatenate([exponents, now[None]]))
        expected[t] = (weights * value[: t + 1].double().numpy()).sum(0) / weights.sum(0)
    pages = torch.full((6, 3, channels), math.nan)
    rows = []
    for begin, end in [(0, 1), (1, 2), (2, 17), (17, 20)]:
        step = _state_step([end], [end - begin], [[1, 0, 3, 4, 5]])
        inputs = [key[begin:end], value[begin:end], decay, first, TorchState(pages)]
        rows.append(reference("wkv")(inputs, {}, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=2e-5)


def _matrix_wkv_by_hand(r, w, k, v, bonus, removal):
    """The recurrence as the papers have it, with a state [H, V, K]: what each token reads, what its
    bonus adds, and the last state. `removal`: rates, removal and boost of RWKV-7."""
    state = np.zeros((v.shape[1], v.shape[2], k.shape[2]))
    y, own = np.zeros(v.shape), np.zeros(v.shape)
    for t in range(v.shape[0]):
        for head in range(v.shape[1]):
            key, value, read = k[t, head], v[t, head], r[t, head]
            y[t, head] = state[head] @ read
            if removal is None:
                transition = np.diag(np.exp(-np.exp(w[t, head])))
            else:
                rate, x = 1 / (1 + np.exp(-removal[0][t, head])), removal[1][head] * key
                x = x / np.linalg.norm(x)
                decay = np.exp(-np.exp(-0.5) / (1 + np.exp(-w[t, head])))
                transition = np.diag(decay) - np.outer(x, rate * x)
                key = key * (1 + removal[2][head] * (rate - 1))
            state[head] = state[head] @ transition + np.outer(value, key)
            own[t, head] = (read * bonus[head] * key).sum() * value
            if removal is not None:
                y[t, head] = state[head] @ read
    return y, own, state


@pytest.mark.parametrize("version", [5, 6, 7])
def test_matrix_wkv_goes_on_from_its_state(version: int):
    tokens, heads, keys, values = 45, 3, 5, 4

    def rows(seed: int, width: int) -> torch.Tensor:
        """Not those of another seed."""
        return _random(seed, tokens, heads * width)[-1]

    r, w, k, v = rows(1, keys), rows(2, keys), rows(3, keys), rows(4, values)
    if version == 5:
        w = w[0].clone()
    vectors = list(_random(3, heads * keys))
    rate = rows(5, keys)
    removes = version == 7

    def wide(x: torch.Tensor) -> np.ndarray:
        return x.double().reshape(-1, heads, x.shape[-1] // heads).numpy()

    by_hand = [wide(rate), wide(vectors[1])[0], wide(vectors[2])[0]] if removes else None
    decays = np.broadcast_to(wide(w), (tokens, heads, keys))
    y, own, last = _matrix_wkv_by_hand(
        wide(r), decays, wide(k), wide(v), wide(vectors[0])[0], by_hand
    )
    expected = [y, own] if removes else [y + own]
    pages = torch.full((14, heads, keys, values), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    results = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step, own_rows = _state_step([end], [end - begin], table), slice(begin, end)
        decay = w if version == 5 else w[own_rows]
        removal = [rate[own_rows], *vectors[1:]] if removes else [None] * 3
        inputs = [r[own_rows], decay, k[own_rows], v[own_rows], vectors[0], *removal]
        results.append(reference("matrix_wkv")([*inputs, TorchState(pages)], {}, step))
    for parts, right in zip(zip(*results, strict=True), expected, strict=True):
        np.testing.assert_allclose(torch.cat(parts).numpy(), right, atol=2e-5)
    np.testing.assert_allclose(pages[12].mT.numpy(), last, atol=2e-5)
    assert pages[[2, 8, 9]].isnan().all()


def test_gated_recurrence_goes_on_from_its_state():
    tokens, channels = 45, 6
    x, gate, rate = _random(tokens, channels), _random(channels, tokens).T, _random(1, channels)[0]
    wide = [value.double().numpy() for value in (x, gate, rate)]
    h, expected = wide[0][0], np.zeros((tokens, channels))
    for t in range(tokens):
        log_a = -8 / (1 + np.exp(-wide[1][t])) * np.log1p(np.exp(wide[2]))
        if t:
            h = np.exp(log_a) * h + np.sqrt(1 - np.exp(2 * log_a)) * wide[0][t]
        expected[t] = h
    pages = torch.full((14, channels), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    rows = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step = _state_step([end], [end - begin], table)
        inputs = [x[begin:end], gate[begin:end], rate, TorchState(pages)]
        rows.append(reference("gated_recurrence")(inputs, {}, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(pages[12].numpy(), h, atol=2e-5)


@pytest.mark.parametrize("parts", [1, 2])
def test_compress_tokens_goes_on_from_its_state(parts: int):
    tokens, channels, window = 45, 3, 4
    x, gate = _random(tokens, parts * channels), 3 * _random(parts * channels, tokens).T
    bias = _random(window, parts * channels)
    z = (gate + bias.repeat(12, 1)[:tokens]).exp().reshape(tokens, parts, channels)
    values = x.reshape(tokens, parts, channels)
    expected = torch.zeros(tokens, channels)
    for end in range(window, tokens + 1, window):
        own = slice(end - window, end)
        weights, sums = z[own, -1].sum(0), (z[own, -1] * values[own, -1]).sum(0)
        if parts == 2 and end > window:
            before = slice(end - 2 * window, end - window)
            weights, sums = weights + z[before, 0].sum(0), sums + (z * values)[before, 0].sum(0)
        expected[end - 1] = sums / weights
    pages = torch.full((14, parts, 3, channels), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    rows = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step = _state_step([end], [end - begin], table)
        inputs = [x[begin:end], gate[begin:end], bias, TorchState(pages)]
        rows.append(reference("compress_tokens")(inputs, {}, step)[0])
    torch.testing.assert_close(torch.cat(rows), expected, atol=2e-5, rtol=0)


def _delta_by_hand(q, k, v, share, decay):
    """One token and head after the other: y [T, H, V] and the last state [H, K, V]."""
    q, k = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    state = np.zeros((v.shape[1], k.shape[2], v.shape[2]))
    y = np.zeros(v.shape)
    for t in range(v.shape[0]):
        for head in range(v.shape[1]):
            s = state[head]
            s *= decay[t, head, :, None]
            s += np.outer(k[t, head], share[t, head] * (v[t, head] - k[t, head] @ s))
            y[t, head] = q[t, head] @ s / np.sqrt(k.shape[2])
    return y, state


@pytest.mark.parametrize(
    ("by_group", "in_turn", "decays"), [(0, 0, 1), (1, 0, 1), (0, 0, 5), (0, 1, 1)]
)
def test_gated_delta_goes_on_from_its_state(by_group, in_turn, decays):
    tokens, heads, groups, keys, values = 45, 4, 2, 5, 3
    b, a = _random(tokens, heads), _random(heads * decays, tokens).T
    a_log, bias = _random(1, heads), _random(heads * decays, 1).T - 1
    q, k = _random(tokens, groups, keys), _random(groups, tokens, keys).transpose(0, 1)
    v = _random(tokens, heads, values)
    if by_group:
        qkv = torch.cat([q, k, v.reshape(tokens, groups, -1)], -1)
    else:
        qkv = torch.cat([x.reshape(tokens, -1) for x in (q, k, v)], -1)
    wide = [x.double().numpy() for x in (q, k, v, b, a, a_log[0], bias[0])]
    steps = np.log1p(np.exp(wide[4] + wide[6]))
    decay = np.exp(-np.exp(wide[5])[:, None] * steps.reshape(tokens, heads, decays))
    decay = np.broadcast_to(decay, (tokens, heads, keys))
    of_head = [head % groups if in_turn else head * groups // heads for head in range(heads)]
    wide[:2] = [x[:, of_head] for x in wide[:2]]
    expected, last = _delta_by_hand(*wide[:3], 1.5 / (1 + np.exp(-wide[3])), decay)
    pages = torch.full((14, heads, keys, values), math.nan)
    table = [[1, 0, 3, 4, 5, 6, 7, 0, 0, 10, 11, 12]]
    rows = []
    for begin, end in [(0, 2), (2, 3), (3, 40), (40, 45)]:
        step = _state_step([end], [end - begin], table)
        parts = qkv[begin:end], b[begin:end], a[begin:end]
        inputs = [*parts, a_log[0], bias[0], TorchState(pages)]
        attributes = {"by_group": by_group, "in_turn": in_turn, "share_scale": 1.5}
        rows.append(reference("gated_delta")(inputs, attributes, step)[0])
    np.testing.assert_allclose(torch.cat(rows).numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(pages[12].numpy(), last, atol=2e-5)
    assert pages[[2, 8, 9]].isnan().all()
