"""When the tokens of an output are said, by the heads of cross attention that follow the sound.

begins = token_times(heard, clip_s=11.0)

A head says how much each token attends to each row of a clip. Of all heads, the mean of what a
token attends to more than other tokens do is the gain of hearing it there. The tokens are said in
order: dynamic time warping finds the path through tokens and rows with the largest gain, on which a
token is said from the first of its rows on. Source: openai/whisper, timing.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pagemill.render.transcription.base import RATE

_ROW_S = 0.02  # of sound that a row of Whisper's encoder stands for
_FRAMES_PER_ROW = 2
_FRAME = 160  # samples: the hop of log-mel frames
_FILTERED = 7  # rows of a clip, of which the median smooths what a token attends to
_BOTH, _TOKEN, _ROW = range(3)  # steps of a path: to the next token and row, or to one of them


class Heard(NamedTuple):
    """What alignment heads compare, float32: `queries` [tokens, heads, head_dim] of an output, each
    of which finds the token behind its own, and `keys` [rows, heads, head_dim] of all that the
    model hears."""

    queries: np.ndarray
    keys: np.ndarray


def token_times(heard: Heard, clip_s: float) -> np.ndarray:
    """When the token behind each of the output begins, in seconds of a clip that has `clip_s`: f64
    [tokens], in order.

    It takes some 20 ms for each head and hundred tokens: call it in a thread.
    """
    num_tokens, num_heads, _ = heard.queries.shape
    # Rows behind them hear the silence that fills up the clip.
    num_rows = max(1, math.ceil(round(clip_s * RATE) / _FRAME) // _FRAMES_PER_ROW)
    gain = np.zeros((num_tokens, min(num_rows, len(heard.keys))), np.float32)
    for head in range(num_heads):  # one at a time: they may be large
        weights = _attention(heard.queries[:, head], heard.keys[:, head])[:, :num_rows]
        gain += _smoothed(_normalized(weights)) / num_heads
    # NaN, of values that were too large for the model's type, is no gain.
    return _ROW_S * _first_rows(-np.nan_to_num(gain.astype(np.float64)))


def _attention(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Weights [tokens, rows] of queries [tokens, head_dim] and keys [rows, head_dim]."""
    scores = queries @ keys.T * np.float32(queries.shape[1] ** -0.5)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _normalized(weights: np.ndarray) -> np.ndarray:
    """Each row of a clip by the mean and the deviation of its weights, which may be 0 of one token,
    or of a row to which no token attends."""
    deviation = weights.std(axis=0)
    return (weights - weights.mean(axis=0)) / np.where(deviation > 0, deviation, 1)


def _smoothed(weights: np.ndarray) -> np.ndarray:
    """The medians of `_FILTERED` rows around each; in front of the first row and behind the last
    they are reflected."""
    beside = _FILTERED // 2
    if weights.shape[1] <= beside:
        return weights
    padded = np.pad(weights, ((0, 0), (beside, beside)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _FILTERED, axis=1)
    return np.partition(windows, beside, axis=2)[:, :, beside]


def _first_rows(cost: np.ndarray) -> np.ndarray:
    """The path through cost [tokens, rows] with the smallest sum, which goes on by a token, a row
    or both: the first row of each token.

    Sums of one diagonal depend on those of the two before, so each is computed at once.
    """
    num_tokens, num_rows = cost.shape
    # Entry i of a diagonal is the sum of the path to token i - 1; entry 0 is in front of all.
    before, last = (np.full(num_tokens + 1, np.inf, np.float32) for _ in range(2))
    before[0] = 0
    steps = np.zeros((num_tokens + num_rows, num_tokens + 1), np.uint8)
    mirrored = cost[::-1]
    for diagonal in range(num_tokens + num_rows - 1):
        first = max(0, diagonal - num_rows + 1)
        end = min(num_tokens, diagonal + 1)
        both, token, row = before[first:end], last[first:end], last[first + 1 : end + 1]
        step = np.full(end - first, _ROW, np.uint8)
        step[(both < token) & (both < row)] = _BOTH
        step[(token < both) & (token < row)] = _TOKEN
        steps[diagonal, first + 1 : end + 1] = step
        own = mirrored.diagonal(diagonal - num_tokens + 1)[::-1]
        sums = np.full(num_tokens + 1, np.inf, np.float32)
        sums[first + 1 : end + 1] = own + np.choose(step, (both, token, row))
        before, last = last, sums
    firsts = np.zeros(num_tokens, np.int64)
    token, row = num_tokens, num_rows
    while token > 0:
        firsts[token - 1] = row - 1
        step = steps[token + row - 2, token]
        token, row = token - (step != _ROW), row - (step != _TOKEN)
    return firsts
