"""Log-mel spectrograms as Gemma 4's feature extractor makes them.

mel = gemma4_log_mel(samples, bins=128)      # [frames, 128]
"""

from __future__ import annotations

import numpy as np

from pagemill.models.audio.htk_mel import SIZE, htk_filters
from pagemill.models.audio.log_mel import HOP

_WINDOW = 2 * HOP  # samples of a frame, of which the first one has silence in its first half
LEAST_SAMPLES = HOP + 1
"""Of audio: of one frame."""
_FLOOR = 1e-3
_BLOCK = 3000  # frames that are transformed at a time


def gemma4_log_mel(samples: np.ndarray, bins: int) -> np.ndarray:
    """Samples [n], at least LEAST_SAMPLES, from -1 to 1 -> natural logarithms of magnitudes,
    [ceil(n / HOP) - 1, bins]: frames that end in front of the last sample."""
    frames = -(-len(samples) // HOP) - 1
    padded = np.pad(samples.astype(np.float32), (HOP, 0))
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][:frames]
    hann = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)
    filters = htk_filters(bins)
    mel = np.empty((frames, bins), np.float32)
    for first in range(0, frames, _BLOCK):
        spectrum = np.fft.rfft(windows[first : first + _BLOCK] * hann, SIZE)
        mel[first : first + _BLOCK] = np.abs(spectrum) @ filters
    return np.log(mel + np.float32(_FLOOR))
