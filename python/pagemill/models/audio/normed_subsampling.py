"""Two convolutions over the time and the frequencies of log-mel frames, each with a stride of two
in both and a norm of channels behind it, and a linear layer over all frequencies: a vector for each
four frames.

Weights: `layer0.{conv, norm}`, `layer1.{conv, norm}`, kernels of 3 x 3 without biases, and
`input_proj_linear`.

A token has all frames that its vector is made of, as in mel_grid_convolutions.py, so that no token
reads another one's.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.depthwise_subsampling import inside, three_by_three
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_STRIDE = 4  # frames from one vector to the next
_TAPS = 3  # of both convolutions, in time and in frequency
_FRAMES = 7  # that a vector is made of
_FIRST_FRAME = -3  # from that of the vector


class NormedSubsampling:
    """Those of frames of `bins`, a multiple of four, to `channels`, behind the first and the second
    convolution, and vectors of `width`."""

    def __init__(self, bins: int, channels: tuple[int, int], width: int, eps: float) -> None:
        self.bins = bins
        self._channels = channels
        self._width = width
        self._eps = eps

    @property
    def channels(self) -> int:
        """Elements of a row of `features`: frames, and 1, or 0 if the last of the three positions
        of the first convolution that the vector is made of is behind the audio: the second one pads
        with 0 there, other than what the first makes of a last frame. The first position reads no
        frame if it is in front of the audio, and is 0."""
        return _FRAMES * self.bins + 1

    def features(self, mel: np.ndarray) -> np.ndarray:
        """Log-mel frames [frames, bins] -> [vectors, channels]."""
        vectors = -(-len(mel) // _STRIDE)
        around = np.pad(mel, ((-_FIRST_FRAME, _STRIDE), (0, 0)))
        at = np.arange(vectors)[:, None] * _STRIDE + np.arange(_FRAMES)
        last = np.arange(vectors)[:, None] * (_STRIDE // 2) + 1
        rows = [around[at].reshape(vectors, -1), last < (len(mel) + 1) // 2]
        return np.concatenate(rows, axis=1, dtype=np.float32)

    def output(self, weights: Weights, rows: Tensor) -> Tensor:
        """`features` [T, channels] -> [T, width]."""
        shapes = ((_FRAMES, self.bins), None)
        frames, last = ops.split(rows, _FRAMES * self.bins, row_shapes=shapes)
        taps: list[Tensor] = []
        for position, mark in enumerate((None, None, last)):
            places = three_by_three(self.bins, _FRAMES, 2 * position)
            index = weights.index(f"frames_of_{position}", places[None])
            x = self._normed(weights, "layer0", ops.unfold_listed(frames, index, 1), 0)
            taps.append(inside(weights, x, mark))
        half = self.bins // 2
        x = ops.concat(*taps, row_shape=(_TAPS * half, self._channels[0]))
        index = weights.index("frequencies", three_by_three(half, _TAPS, 0)[None])
        windows = ops.unfold_listed(x, index, self._channels[0])
        x = self._normed(weights, "layer1", windows, 1)
        return linear(weights, "input_proj_linear", x, (self._width,))

    def _normed(self, weights: Weights, name: str, windows: Tensor, layer: int) -> Tensor:
        """windows [T, frequencies, _TAPS * _TAPS elements of each channel] -> [T, frequencies,
        channels]."""
        channels = (1, *self._channels)[layer : layer + 2]
        kernel = weights.patches(f"{name}.conv", (*channels[::-1], _TAPS, _TAPS))
        x = ops.linear(windows, kernel)
        x = norm.layer_norm(weights, f"{name}.norm", x, self._eps, bias=False)
        return ops.activation(x, ActivationKind.RELU)
