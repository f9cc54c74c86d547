"""The torch references of attention against a plain softmax over the keys that a query sees."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pagemill.ops.table import reference
from pagemill.ops.torch_step import (
    TorchCache,
    TorchF8Rows,
    TorchLatentCache,
    make_step,
)

DEVICE = torch.device("cpu")


def _run(op: str, *inputs: object, **attributes: float) -> tuple[torch.Tensor, ...]:
    return reference(op)(list(inputs), attributes, None)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def _attention_by_hand(q, keys, values, visible, distances, attributes, sinks, slopes, biases=None):
    """Double precision, one head and query at a time."""
    output = np.zeros(q.shape)
    group = q.shape[1] // keys.shape[1]
    soft_cap, grows_from = attributes.get("soft_cap", 0), attributes.get("grows_from", 0)
    for token in range(q.shape[0]):
        for head in range(q.shape[1]):
            seen = visible[token]
            scores = keys[seen, head // group] @ q[token, head] * attributes["scale"]
            if biases is not None:
                reach = biases.shape[1] // 2
                within = distances[token, seen].clip(-reach, reach)
                scores = scores + biases[head].double().numpy()[reach + within]
            if soft_cap:
                scores = soft_cap * np.tanh(scores / soft_cap)
            position = -distances[token, 0]
            if grows_from and position > grows_from:
                scores = scores * np.log(position) / np.log(grows_from)
            if slopes is not None:
                scores = scores + float(slopes[head]) * distances[token, seen]
            weights = np.exp(scores)
            total = weights.sum() + (0 if sinks is None else np.exp(float(sinks[head])))
            output[token, head] = weights / total @ values[seen, head // group]
    return output


@pytest.mark.parametrize(
    ("sinks", "slopes", "biases"),
    [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)],
)
@pytest.mark.parametrize(
    "features",
    [
        {},
        {"window": 5},
        {"window": 4, "chunked": 1},
        {"causal": 0},
        {"window": 3, "soft_cap": 2},
        {"soft_cap": 2},
        {"grows_from": 3},
        {"soft_cap": 2, "grows_from": 3},
        {"encoder_ends": 1},
        {"encoder_ends": 2},
        {"item_ends": 1},
        {"item_ends": 1, "window": 5},
    ],
    ids=str,
)
def test_paged_attention_over_shuffled_blocks(features, sinks, slopes, biases):
    attributes = {"scale": 0.4, "causal": 1} | features
    window, causal = attributes.get("window", 0), attributes["causal"]
    block_size, heads, kv_heads, head_dim = 4, 6, 2, 8
    # Three requests: decode at length 11, a chunk of 5 after 6, a whole prompt of 9.
    new, lengths = (1, 5, 9), (11, 11, 9)
    if not causal:
        new, lengths = (1, 5, 9), (1, 5, 9)  # bidirectional prompts run whole
    table = np.array([[7, 2, 5], [1, 9, 3], [8, 4, 6]], np.int32)
    rng = np.random.default_rng(window)
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
        "kv": [
            {
                "block_size": block_size,
                "slot_mapping": empty,
                "block_table": table,
                "recent_states": 0,
            }
        ],
    }
    # An item at the positions 2 to 8 of all requests.
    places = np.concatenate([np.arange(n - m, n) for n, m in zip(lengths, new, strict=True)])
    item_ends = np.where((places >= 2) & (places < 9), 9, 0).astype(np.int32)
    batch["item_ends"] = item_ends
    # The first tokens of each request stand for an encoder's rows.
    encoder_ends = (8, 7, 3)
    batch["encoder_ends"] = np.repeat(np.array(encoder_ends, np.int32), new)
    q = torch.from_numpy(rng.normal(size=(starts[-1], heads, head_dim)).astype(np.float32))
    step = make_step(batch, DEVICE)
    sink_logits = torch.linspace(-2.0, 3.0, heads) if sinks else None
    head_slopes = torch.tensor([0.5**i for i in range(heads)]) if slopes else None
    reach = 3
    table_of_biases = torch.from_numpy(rng.normal(size=(heads, 2 * reach + 1)).astype(np.float32))
    operands = [q, cache, sink_logits, head_slopes] if sinks or slopes or biases else [q, cache]
    operands += [table_of_biases] if biases else []
    (output,) = reference("paged_attention")(operands, attributes, step)
    for request, length in enumerate(lengths):
        positions = np.arange(length - new[request], length)[:, None]
        key_positions = np.arange(length)
        visible = np.ones((new[request], length), bool)
        if causal:
            visible = key_positions <= positions
            if "item_ends" in features:
                visible |= key_positions < item_ends[starts[request] : starts[request + 1], None]
            if window:
                chunk = positions // window * window
                first = chunk if "chunked" in features else positions - window + 1
                visible &= key_positions >= first
            end = encoder_ends[request]
            if features.get("encoder_ends") == 2:
                visible &= (key_positions >= end) | (positions < end)
            if features.get("encoder_ends") == 1:
                visible &= key_positions < end
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
            table_of_biases if biases else None,
        )
        np.testing.assert_allclose(output[rows].numpy(), expected, atol=2e-6, rtol=0)


def _select_tokens_by_hand(q, rope, latents, new, lengths, cache, step):
    """What `select_tokens` chooses, which is what a plain sort of the scores chooses."""
    weights = _random(len(q), q.shape[1])
    operands = [q, rope, weights, cache]
    (chosen,) = reference("select_tokens")(operands, {"choices": 4}, step)
    queries, token = torch.cat([q, rope], -1), 0
    for r, length in enumerate(lengths):
        for position in range(length - new[r], length):
            keys = torch.from_numpy(latents[r, : position + 1])
            scores = (queries[token] @ keys.T).relu().T @ weights[token]
            best = sorted(scores.argsort(descending=True)[:4].tolist())
            assert chosen[token].tolist() == best + [-1] * (4 - len(best))
            token += 1
    return chosen


@pytest.mark.parametrize("sparse", [False, True])
def test_latent_attention_over_shuffled_blocks(sparse):
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
        "kv": [
            {
                "block_size": block_size,
                "slot_mapping": mapping,
                "block_table": table,
                "recent_states": 0,
            }
        ],
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
    operands, scale = [q, rope, cache], {"scale": 0.4}
    if sparse:
        operands.append(_select_tokens_by_hand(q, rope, latents, new, lengths, cache, step))
    (output,) = reference("latent_attention")(operands, scale, step)
    for r, length in enumerate(lengths):
        for i in range(new[r]):
            token, seen = starts[r] + i, latents[r, : length - new[r] + i + 1].astype(float)
            if sparse:
                positions = operands[3][token].numpy()
                seen = seen[positions[positions >= 0]]
            for head in range(heads):
                query = torch.cat([q[token, head], rope[token, head]]).double().numpy()
                weights = np.exp(seen @ query * 0.4)
                expected = weights / weights.sum() @ seen[:, :size]
                np.testing.assert_allclose(output[token, head].numpy(), expected, atol=2e-6, rtol=0)


def test_rows_in_fp8_have_a_scale_for_each_128_elements():
    """Powers of two; what is not finite makes its 128 NaN, and the last two are in bf16."""
    rows = TorchF8Rows(5, 132, 2, DEVICE)
    written = torch.zeros(2, 132)
    written[0, :3] = torch.tensor([900.0, 1.0625, 0.001])  # scale 4: beyond 448 * 2
    written[0, 128:] = torch.tensor([1.0625, -448, 1 + 2**-8, 3])
    written[1, 5] = torch.inf
    written[1, 128] = -0.3
    rows[torch.tensor([3, 1])] = written
    read = rows[torch.tensor([[1, 3], [0, 3]])]
    assert read.shape == (2, 2, 132)
    assert read[1, 0].abs().max() == 0
    expected = torch.zeros(132)
    expected[:2] = torch.tensor([896.0, 1])
    expected[128:] = torch.tensor([1, -448, 1, 3])
    torch.testing.assert_close(read[0, 1], expected, rtol=0, atol=0)
    assert read[0, 0, :128].isnan().all()
    assert read[0, 0, 128] == -0.3125


def test_two_attentions_merge_to_that_over_all_keys():
    scores, values, sinks = 3 * _random(2, 5, 3), _random(2, 5, 3, 4), _random(1, 3)[0]
    scores[1, 3:] = -torch.inf  # token 1 sees nothing of the second part
    parts: list[torch.Tensor] = []
    for keys in (slice(0, 3), slice(3, 5)):
        weights = scores[:, keys].softmax(1).nan_to_num()
        parts += [(weights[..., None] * values[:, keys]).sum(1), scores[:, keys].logsumexp(1)]
    (y,) = reference("merge_attention")([sinks, *parts], {}, None)
    shares = torch.cat([scores, sinks.expand(2, 1, 3)], 1).softmax(1)[:, :5]
    torch.testing.assert_close(y, (shares[..., None] * values).sum(1))
    (alone,) = reference("merge_attention")([None, *parts[:2]], {}, None)
    torch.testing.assert_close(alone, parts[0])


def test_rows_of_several_tokens_are_seen_from_the_last_on():
    """Requests of 5 tokens and of the seventh, in blocks of 4, a row for each 2 tokens."""
    table, mapping = np.array([[2, 1], [3, 4]], np.int32), np.array([8, 9, 10, 11, 4, 18], np.int32)
    batch = {
        "token_ids": mapping,
        "positions": mapping,
        "logits_rows": mapping,
        "query_start": np.array([0, 5, 6], np.int32),
        "seq_lens": np.array([5, 7], np.int32),
        "kv": [
            {
                "block_size": 4,
                "recent_states": 0,
                "slot_mapping": mapping,
                "block_table": table,
            }
        ],
    }
    step, cache = make_step(batch, DEVICE), TorchLatentCache(torch.full((10, 3), 1e6), 0, 2)
    written = _random(6, 3)
    assert reference("latent_write")([written, None, cache], {}, step) == ()
    assert (cache.rows < 1e6).all(1).nonzero().flatten().tolist() == [4, 5]
    cache.rows[6:9] = _random(3, 3)
    contexts = [cache.rows[[4, 5]], cache.rows[[6, 7, 8]]]
    q = _random(6, 2, 3)
    attributes = {"scale": 0.5, "sums": 1.0}
    y, lse = reference("latent_attention")([q, None, cache], attributes, step)
    (chosen,) = reference("select_tokens")([q, None, torch.ones(6, 2), cache], {"choices": 4}, step)
    for token, (request, seen) in enumerate([(0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (1, 3)]):
        rows = contexts[request][:seen]
        scores = q[token] @ rows.T * 0.5
        torch.testing.assert_close(y[token], scores.softmax(-1) @ rows)
        torch.testing.assert_close(lse[token], scores.logsumexp(-1))
        assert chosen[token].tolist() == [*range(seen), *[-1] * (4 - seen)]


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


def test_attention_adds_a_bias_for_each_distance():
    q, k, v, biases = _random(5, 2, 8), _random(5, 2, 8) / 2, _random(5, 2, 8) * 2, _random(2, 5)
    spans = [SimpleNamespace(begin=0, end=5)]
    attributes = {"scale": 0.5, "causal": 0.0}
    (y,) = reference("attention")([q, k, v, biases], attributes, SimpleNamespace(spans=spans))
    for token, head in ((0, 0), (1, 1), (4, 0)):
        reach = [biases[head, 2 + min(max(key - token, -2), 2)] for key in range(5)]
        weights = (k[:, head] @ q[token, head] * 0.5 + torch.stack(reach)).softmax(0)
        torch.testing.assert_close(y[token, head], weights @ v[:, head])


@pytest.mark.parametrize("of_queries", [False, True])
def test_attention_adds_biases_of_each_key(of_queries: bool):
    """Of two requests, the second from token 2 on; those of queries have another reach."""
    q, k, v = _random(7, 2, 8), _random(7, 2, 8) / 2, _random(7, 2, 8) * 2
    by_query = _random(7, 2, 3) if of_queries else None
    by_key = _random(7, 2, 5)
    step = SimpleNamespace(spans=[SimpleNamespace(begin=0, end=2), SimpleNamespace(begin=2, end=7)])
    attributes = {"scale": 0.5, "causal": 0.0}
    (y,) = reference("attention")([q, k, v, by_query, None, by_key], attributes, step)
    for token, head in ((0, 0), (1, 1), (2, 1), (4, 0), (6, 1)):
        keys = range(2) if token < 2 else range(2, 7)
        scores: list[torch.Tensor] = []
        for key in keys:
            score = k[key, head] @ q[token, head] * 0.5
            score = score + by_key[key, head, 2 + min(max(key - token, -2), 2)]
            if by_query is not None:
                score = score + by_query[token, head, 1 + min(max(key - token, -1), 1)]
            scores.append(score)
        weights = torch.stack(scores).softmax(0)
        torch.testing.assert_close(y[token, head], weights @ v[keys.start : keys.stop, head])


@pytest.mark.parametrize("soft_cap", [0.0, 0.5])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_attention_caps_sums_with_biases_and_joins_sinks(soft_cap: float, with_sinks: bool):
    q, k, v, biases = _random(5, 2, 8), _random(5, 1, 8), _random(5, 1, 8), _random(5, 2, 5)
    sinks = _random(2) + 1 if with_sinks else None
    step = SimpleNamespace(spans=[SimpleNamespace(begin=0, end=5)])
    attributes = {"scale": 0.5, "causal": 0.0, "soft_cap": soft_cap}
    (y,) = reference("attention")([q, k, v, biases, None, None, sinks], attributes, step)
    for token, head in ((0, 0), (1, 1), (4, 0)):
        of_keys = [biases[token, head, 2 + min(max(key - token, -2), 2)] for key in range(5)]
        scores = k[:, 0] @ q[token, head] * 0.5 + torch.stack(of_keys)
        if soft_cap:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        weights = scores.exp()
        total = weights.sum() + (sinks[head].exp() if with_sinks else 0)
        torch.testing.assert_close(y[token, head], weights @ v[:, 0] / total)


def test_attention_within_windows_of_a_grid():
    """Windows of 2 rows and columns: of the first request tokens 0 and 1, then 2; in the second
    token 3 alone, since token 4 has another time."""
    q, k, v = _random(5, 2, 8), _random(5, 1, 8) / 2, _random(5, 1, 8) * 2
    spans = [SimpleNamespace(begin=0, end=3), SimpleNamespace(begin=3, end=5)]
    positions = [[0, 2, 1], [0, 3, 0], [0, 3, 2], [0, 0, 0], [1, 0, 0]]
    step = SimpleNamespace(spans=spans, inputs={"grid_positions": torch.tensor(positions)})
    attributes = {"scale": 0.5, "causal": 0.0, "grid_window": 2.0}
    (y,) = reference("attention")([q, k, v], attributes, step)
    for token, keys in enumerate([[0, 1], [0, 1], [2], [3], [4]]):
        weights = (k[keys, 0] @ q[token].T * 0.5).softmax(0)
        torch.testing.assert_close(y[token], weights.T @ v[keys, 0])


@pytest.mark.parametrize(
    ("attributes", "sees"),
    [
        ({"causal": 0.0, "window": 4.0, "chunked": 1.0}, lambda p, key: p // 4 == key // 4),
        ({"causal": 1.0, "window": 4.0, "chunked": 1.0}, lambda p, key: 4 * (p // 4) <= key <= p),
        ({"causal": 1.0, "prefix": 3.0}, lambda p, key: key <= max(p, 2)),
        ({"causal": 0.0, "window": 2.0}, lambda p, key: abs(p - key) < 2),
    ],
    ids=str,
)
def test_attention_of_tokens_of_several_rows(
    attributes: dict[str, float], sees: Callable[[int, int], bool]
):
    """Two requests of two tokens and one, of three rows each."""
    spans = [SimpleNamespace(begin=0, end=2), SimpleNamespace(begin=2, end=3)]
    q, k, v = _random(3, 3, 2, 8), _random(3, 3, 1, 8) / 2, _random(3, 3, 1, 8) * 2
    step = SimpleNamespace(spans=spans)
    (y,) = reference("attention")([q, k, v], {"scale": 0.5, **attributes}, step)
    assert y.shape == q.shape
    q, k, v, y = (each.flatten(0, 1) for each in (q, k, v, y))
    for row in range(9):
        start, end = (0, 6) if row < 6 else (6, 9)
        keys = [key for key in range(start, end) if sees(row - start, key - start)]
        weights = (k[keys, 0] @ q[row].T * 0.5).softmax(0)
        torch.testing.assert_close(y[row], weights.T @ v[keys, 0])


@pytest.mark.parametrize("by_query", [False, True])
def test_attention_adds_biases_of_rows_and_columns(by_query: bool):
    """A grid of 2 x 3, of which rows have a reach of 1, and columns of 1, too: those of the
    columns farther apart are those of the reach."""
    q, k, v = _random(6, 2, 8), _random(6, 2, 8) / 2, _random(6, 2, 8) * 2
    shape = (6, 2, 3) if by_query else (2, 3)
    rows, columns = _random(*shape), _random(*shape) * 2
    step = SimpleNamespace(spans=[SimpleNamespace(begin=0, end=6)])
    attributes = {"scale": 0.5, "causal": 0.0, "grid_columns": 3.0}
    (y,) = reference("attention")([q, k, v, rows, columns], attributes, step)
    for token, head in ((0, 0), (1, 1), (4, 0), (5, 1)):
        of_row, of_column = ((t[token] if by_query else t)[head] for t in (rows, columns))
        added = [
            of_row[1 + key // 3 - token // 3] + of_column[1 + min(max(key % 3 - token % 3, -1), 1)]
            for key in range(6)
        ]
        weights = (k[:, head] @ q[token, head] * 0.5 + torch.stack(added)).softmax(0)
        torch.testing.assert_close(y[token, head], weights @ v[:, head])
