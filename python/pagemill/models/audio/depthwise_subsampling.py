"""Three convolutions over the time and the frequencies of log-mel frames, each with a stride of two
in both, of which the second and the third are depthwise, with a linear layer over channels behind
them: a vector for each eight frames.

Weights: `<prefix>.conv.{0, 2, 3, 5, 6}` with biases, and `<prefix>.out`, which reads all
frequencies of all channels; `encoder_embedding.{global_mean, global_invstd}` of models that
normalize frames.

A token has all frames that its vector is made of, as in mel_grid_convolutions.py, so that no token
reads another one's.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

STRIDE = 8  # frames from one vector to the next
_TAPS = 3  # of all convolutions, in time and in frequency
_FRAMES = 15  # that a vector is made of
_FIRST_FRAME = -7  # from that of the vector
# Positions of the first convolution, from the vector's own, that may be outside of the audio. What
# a convolution pads with is 0, other than what the one before makes of frames that are not there.
_EDGES = (-1, 1, 2, 3)
_EDGE_OF_FIRST = {2: -1, 4: 1, 6: 3}  # by the position's number among seven
_EDGE_OF_SECOND = {0: -1, 2: 2}  # likewise among three


class DepthwiseSubsampling:
    """Those of frames of so many `bins`, by convolutions of `kernels` channels, to vectors of
    `width`. `prefix` is in front of the names; frames are `normalized` by statistics of the model
    or not."""

    def __init__(
        self,
        bins: int,
        kernels: int,
        width: int,
        activation: ActivationKind,
        *,
        prefix: str,
        normalized: bool,
    ) -> None:
        self.bins = bins
        self._channels, self._width = kernels, width
        self._activation, self._prefix = activation, prefix
        self._is_normalized = normalized

    @property
    def channels(self) -> int:
        """Elements of a row of `features`: frames; 1 or 0 for each frame, 1 if it is there; for
        each of `_EDGES`, 1 if it is inside; and 1."""
        return _FRAMES * self.bins + _FRAMES + len(_EDGES) + 1

    def features(self, mel: np.ndarray) -> np.ndarray:
        """Log-mel frames [frames, bins] -> [vectors, channels]."""
        frames = len(mel)
        vectors = -(-frames // STRIDE)
        at = np.arange(vectors)[:, None] * STRIDE + np.arange(_FRAMES) + _FIRST_FRAME
        exists = (at >= 0) & (at < frames)
        read = mel[np.where(exists, at, 0)] * exists[..., None]
        positions = np.arange(vectors)[:, None] * (STRIDE // 2) + _EDGES
        exist = (positions >= 0) & (positions < (frames + 1) // 2)
        ones = np.ones((vectors, 1))
        rows = [read.reshape(vectors, -1), exists, exist, ones]
        return np.concatenate(rows, axis=1).astype(np.float32)

    def output(self, weights: Weights, rows: Tensor) -> Tensor:
        """`features` [T, channels] -> [T, width]; zeros for rows of zeros."""
        frames, rows = ops.split(rows, _FRAMES * self.bins, row_shapes=((_FRAMES, self.bins), None))
        exists, rows = ops.split(rows, _FRAMES, row_shapes=((_FRAMES, 1), None))
        if self._is_normalized:
            frames = self._normalized(weights, frames, exists)
        edges: dict[int, Tensor] = {}
        for edge in _EDGES:
            edges[edge], rows = ops.split(rows, 1)
        halves = [-(-self.bins // 2), -(-self.bins // 4), -(-self.bins // 8)]
        name = f"{self._prefix}.conv.0"
        kernel = weights.patches(name, (self._channels, 1, _TAPS, _TAPS))
        bias = weights.vector(f"{name}.bias", self._channels)

        # Both are traced when they are read, so that few of their results exist at a time.
        @cache
        def first(position: int) -> Tensor:
            places = three_by_three(self.bins, _FRAMES, 2 * position)
            index = weights.index(f"frames_of_{position}", places[None])
            x = ops.linear(ops.unfold_listed(frames, index, 1), kernel, bias)
            x = ops.activation(x, self._activation)
            return inside(weights, x, edges.get(_EDGE_OF_FIRST.get(position, 0)))

        def second(output: int) -> Tensor:
            taps = [first(2 * output + tap) for tap in range(_TAPS)]
            x = self._separable(weights, (2, 3), taps, halves[0])
            return inside(weights, x, edges.get(_EDGE_OF_SECOND.get(output, 0)))

        x = self._separable(weights, (5, 6), [second(i) for i in range(_TAPS)], halves[1])
        x = inside(weights, x, rows)
        x = ops.unfold(x, halves[2])  # all frequencies of a channel side by side
        name = f"{self._prefix}.out"
        matrix = weights.linear(name, (self._width, self._channels * halves[2]))
        y = ops.linear(x, matrix, row_shape=(self._width,))
        column = weights.reshaped(f"{name}.bias", (self._width,), (self._width, 1))
        return ops.add(y, ops.linear(rows, column))

    def _normalized(self, weights: Weights, frames: Tensor, exists: Tensor) -> Tensor:
        """frames [T, _FRAMES, bins] by the mean and deviation of each bin; zeros for frames that
        do not exist."""
        mean, factor = (f"encoder_embedding.{name}" for name in ("global_mean", "global_invstd"))
        column = weights.reshaped(mean, (self.bins,), (self.bins, 1))
        x = ops.add(frames, ops.scale(ops.linear(exists, column), -1))
        return ops.scale_columns(x, weights.vectors((factor,) * _FRAMES, self.bins))

    def _separable(
        self, weights: Weights, modules: tuple[int, int], taps: list[Tensor], positions: int
    ) -> Tensor:
        """A depthwise convolution of `taps` in time, [T, positions, channels] each, and the layer
        behind it: [T, half as many positions, channels]."""
        depthwise, pointwise = (f"{self._prefix}.conv.{module}" for module in modules)
        channels = self._channels
        x = ops.concat(*taps, row_shape=(_TAPS * positions, channels))
        index = weights.index(f"windows_of_{positions}", three_by_three(positions, _TAPS, 0))
        kernel = weights.small(f"{depthwise}.weight", (channels, 1, _TAPS, _TAPS))
        bias = weights.vector(f"{depthwise}.bias", channels)
        x = ops.depthwise_conv_listed(x, kernel, bias, index)
        matrix = weights.patches(pointwise, (channels, channels, 1, 1))
        x = ops.linear(x, matrix, weights.vector(f"{pointwise}.bias", channels))
        return ops.activation(x, self._activation)


def inside(weights: Weights, x: Tensor, mark: Tensor | None) -> Tensor:
    """x [T, positions, channels], times `mark` [T, 1] if it may be outside of the audio."""
    if mark is None:
        return x
    count = int(x.shape[1])
    ones = weights.constant(f"ones{count}", [[1.0]] * count)
    return ops.scale_groups(x, ops.linear(mark, ones, dtype="f32"))


def three_by_three(positions: int, rows: int, first: int) -> np.ndarray:
    """Windows of _TAPS of `rows` in time, from the `first` on, with `positions` each, and _TAPS of
    these with a stride of two: i32 [windows, taps], -1 beyond the first and the last position."""
    count = -(-positions // 2)
    at = 2 * np.arange(count)[:, None] + np.arange(_TAPS) - 1
    places = (first + np.arange(_TAPS))[:, None] * positions + at[:, None, :]
    exist = (at >= 0) & (at < positions)
    assert first + _TAPS <= rows
    return np.where(exist[:, None, :], places, -1).reshape(count, -1).astype(np.int32)
