"""Convolutions over the time and the frequencies of log-mel frames, in front of encoders of audio:
a vector for each eight frames of a chunk.

Weights: `conv2d1`, `conv2d2` and `conv2d3`, with biases, kernels of 3 x 3 and a stride of two, and
`conv_out`, which reads all frequencies of all channels.

A token has all frames that its vector is made of, so that no token reads another one's before
attention. Along frequencies, convolutions are products with windows (`ops.unfold`); along time,
they are sums of three.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Stripe
from pagemill.ops.trace import Tensor

_STRIDE = 8  # frames from one vector to the next
_TAPS = 3  # of all convolutions, in time and in frequency
_POSITIONS = 7  # of the first convolution in time, of which the third one makes a vector
# Frames that the first position reads, the first of three, from that of the vector.
_FIRST_FRAME = -7
# Positions of the first convolution, from the vector's own, that may be outside of a chunk. What a
# convolution pads with is 0, other than what the one before makes of frames that are not there.
_EDGES = (-1, 1, 2, 3)
_EDGE_OF_FIRST = {2: -1, 4: 1, 6: 3}  # by the position's number among `_POSITIONS`
# Those of the second convolution, by the number of its output among three. The first one's output
# that it is centered at is outside if it is.
_EDGE_OF_SECOND = {0: -1, 2: 2}


class MelGridConvolutions:
    """Three convolutions of frames of `bins` to `channels` at an eighth of the frequencies, and a
    linear layer to vectors of `width`."""

    def __init__(self, bins: int, channels: int, width: int) -> None:
        self._bins = bins
        self._channels = channels
        self._width = width

    @property
    def channels(self) -> int:
        """Elements of a row of `features`: for each of `_POSITIONS` three frames, of which each bin
        has its values side by side; and 1 or 0 for each of `_EDGES`, 1 if it is inside."""
        return _POSITIONS * _TAPS * self._bins + len(_EDGES)

    def vectors(self, frames: int) -> int:
        """Those of a chunk of so many frames."""
        return _halved(_halved(_halved(frames)))

    def features(self, mel: np.ndarray, chunk: int) -> np.ndarray:
        """Log-mel frames [bins, frames] of chunks of `chunk` frames each -> [vectors of all chunks,
        channels]."""
        count = self.vectors(chunk)
        around = np.pad(
            mel.reshape(self._bins, -1, chunk), ((0, 0), (0, 0), (-_FIRST_FRAME, _STRIDE))
        )
        frames = np.arange(count)[:, None, None] * _STRIDE
        frames = frames + np.arange(_POSITIONS)[:, None] * 2 + np.arange(_TAPS)
        read = around[:, :, frames].transpose(1, 2, 3, 0, 4)  # chunk, vector, position, bin, tap
        edges = np.arange(count)[:, None] * (_STRIDE // 2) + _EDGES
        inside = (edges >= 0) & (edges < _halved(chunk))
        rows = np.empty((len(read), count, self.channels), np.float32)
        rows[:, :, : -len(_EDGES)] = read.reshape(len(read), count, -1)
        rows[:, :, -len(_EDGES) :] = inside
        return rows.reshape(-1, self.channels)

    def output(self, weights: Weights, rows: Tensor) -> Tensor:
        """`features` [T, channels] -> [T, width]."""
        frames: list[Tensor] = []
        for _ in range(_POSITIONS):
            shape = (_TAPS * self._bins, 1)
            piece, rows = ops.split(rows, _TAPS * self._bins, row_shapes=(shape, None))
            frames.append(piece)
        edges = _columns(rows, _EDGES)
        kernel = weights.patches("conv2d1", (self._channels, 1, _TAPS, _TAPS))
        bias = weights.vector("conv2d1.bias", self._channels)

        # Both are traced when they are read, so that few of their results exist at a time.
        @cache
        def first(position: int) -> Tensor:
            # Windows of three bins with a stride of two; each bin has three frames.
            windows = ops.unfold(frames[position], _TAPS * _TAPS, stride=2 * _TAPS, padding=_TAPS)
            x = ops.activation(ops.linear(windows, kernel, bias), ActivationKind.GELU)
            return _windows(weights, x, edges.get(_EDGE_OF_FIRST.get(position, 0)))

        def second(output: int) -> Tensor:
            taps = (first(2 * output + tap) for tap in range(_TAPS))
            x = self._sum(weights, "conv2d2", taps)
            return _windows(weights, x, edges.get(_EDGE_OF_SECOND.get(output, 0)))

        x = self._sum(weights, "conv2d3", map(second, range(_TAPS)))
        x = ops.unfold(x, int(x.shape[1]))  # all frequencies of a channel side by side
        return linear(weights, "conv_out", x, (self._width,))

    def _sum(self, weights: Weights, module: str, taps: Iterable[Tensor]) -> Tensor:
        """The activations of a convolution whose `taps` in time see these windows [T, frequencies,
        channels * 3]: [T, frequencies, channels]."""
        kernel = (self._channels, self._channels, _TAPS, _TAPS)
        total: Tensor | None = None
        for tap, windows in enumerate(taps):
            weight = weights.column_stripe(f"{module}.weight", kernel, Stripe(tap, _TAPS))
            bias = weights.vector(f"{module}.bias", self._channels) if total is None else None
            y = ops.linear(windows, weight, bias)
            total = y if total is None else ops.add(total, y)
        assert total is not None
        return ops.activation(total, ActivationKind.GELU)


def _windows(weights: Weights, x: Tensor, inside: Tensor | None) -> Tensor:
    """x [T, frequencies, channels], times `inside` [T, 1] if it may be outside of a chunk -> the
    windows of the next convolution."""
    if inside is not None:
        count = int(x.shape[1])
        ones = weights.constant(f"ones{count}", [[1.0]] * count)
        x = ops.scale_groups(x, ops.linear(inside, ones, dtype="f32"))
    return ops.unfold(x, _TAPS, stride=2, padding=1)


def _columns(x: Tensor, names: tuple[int, ...]) -> dict[int, Tensor]:
    """x [T, len(names)] as columns [T, 1]."""
    columns: dict[int, Tensor] = {}
    for name in names[:-1]:
        columns[name], x = ops.split(x, 1)
    return {**columns, names[-1]: x}


def _halved(positions: int) -> int:
    """The outputs of a convolution with a stride of two and a padding of one."""
    return (positions + 1) // 2
