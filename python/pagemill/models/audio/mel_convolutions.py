"""The two convolutions in front of Whisper's encoder and of others like it: log-mel frames of audio
to a vector for each two of them.

Weights: `conv1` and `conv2`, with biases, kernels of three frames, the second with a stride of two.

Both are sums of linear layers: a token has all five frames that its vector is made of, so that no
token reads another one's before attention.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Stripe
from pagemill.ops.trace import Tensor

STRIDE = 2
"""Frames of a vector."""
_TAPS = 3  # of both convolutions
_FRAMES = 5  # that an output of both is made of
# Added to what the first convolution makes of frames that are not there: GELU makes 0 of it, which
# is what the second one pads with.
_OUTSIDE = -1e4


class MelConvolutions:
    """Convolutions of `bins` of a frame to vectors of `width`."""

    def __init__(self, bins: int, width: int) -> None:
        self.bins = bins
        self.width = width

    @property
    def channels(self) -> int:
        """Elements of a row of `features`: frames, and a mark for the first and the last frame that
        the second convolution reads, 1 if it is not there."""
        return _FRAMES * self.bins + 2

    def features(self, mel: np.ndarray, tokens: int | None = None) -> np.ndarray:
        """Log-mel frames [bins, frames], one at least, as rows [ceil(frames / 2), channels], or the
        first `tokens` of them."""
        frames = mel.shape[1]
        count = -(-frames // STRIDE) if tokens is None else tokens
        around = np.pad(mel, ((0, 0), (_FRAMES // 2, _FRAMES // 2))).T
        windows = np.arange(count)[:, None] * STRIDE + np.arange(_FRAMES)
        rows = np.zeros((count, self.channels), np.float32)
        rows[:, :-2] = around[windows].reshape(count, -1)
        rows[0, -2] = 1
        rows[-1, -1] = STRIDE * count > frames
        return rows

    def output(self, weights: Weights, rows: Tensor) -> Tensor:
        """`features` [T, channels] -> [T, width]."""
        frames: list[Tensor] = []
        for _ in range(_FRAMES):
            frame, rows = ops.split(rows, self.bins)
            frames.append(frame)
        outside = weights.constant("outside", [[_OUTSIDE]] * self.width)
        before, behind = ops.split(rows, 1)
        marks = {0: before, _TAPS - 1: behind}
        inner: list[Tensor] = []
        for tap in range(_TAPS):
            x = _convolution(weights, "conv1", frames[tap : tap + _TAPS], self.width)
            if tap in marks:
                x = ops.add(x, ops.linear(marks[tap], outside))
            inner.append(ops.activation(x, ActivationKind.GELU))
        x = _convolution(weights, "conv2", inner, self.width)
        return ops.activation(x, ActivationKind.GELU)


def _convolution(weights: Weights, module: str, taps: list[Tensor], width: int) -> Tensor:
    """The output of a convolution, whose `taps` see these rows [T, in]: [T, width]."""
    total: Tensor | None = None
    for index, rows in enumerate(taps):
        shape, stripe = (width, rows.width, len(taps)), Stripe(index, len(taps))
        weight = weights.column_stripe(f"{module}.weight", shape, stripe)
        bias = weights.vector(f"{module}.bias", width) if total is None else None
        y = ops.linear(rows, weight, bias)
        total = y if total is None else ops.add(total, y)
    assert total is not None
    return total
