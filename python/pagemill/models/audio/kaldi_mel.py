"""Log-mel spectrograms as Phi-4 multimodal's feature extractor makes them, by Kaldi's recipe.

mel = kaldi_log_mel(samples, bins=80)      # [frames, 80]
"""

from __future__ import annotations

import numpy as np

from pagemill.models.audio.log_mel import HOP, SAMPLING_RATE, WINDOW

_SIZE = 512  # samples of a spectrum, behind which the window is zeros
_HIGHEST_HZ = 7690.0
_PREEMPHASIS = np.float32(0.97)
_LOUDEST = np.float32(32768)  # samples are those of 16 bits
_FLOOR = np.float32(1)
_BLOCK = 3000  # frames that are transformed at a time


def kaldi_log_mel(samples: np.ndarray, bins: int) -> np.ndarray:
    """Samples [n], at least WINDOW, from -1 to 1 -> natural logarithms, [(n - WINDOW) / HOP + 1,
    bins]. What is behind the last whole window is left out."""
    windows = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float32), WINDOW)[::HOP]
    hamming, filters = np.hamming(WINDOW), _filters(bins)
    mel = np.empty((len(windows), bins), np.float32)
    for first in range(0, len(windows), _BLOCK):
        block = windows[first : first + _BLOCK]
        before = np.concatenate([block[:, :1], block[:, :-1]], axis=1)
        emphasized = (block - _PREEMPHASIS * before) * _LOUDEST
        spectrum = np.fft.rfft(emphasized * hamming, _SIZE).astype(np.complex64)
        mel[first : first + _BLOCK] = np.abs(spectrum) ** 2 @ filters
    return np.log(np.maximum(mel, _FLOOR))


def _filters(bins: int) -> np.ndarray:
    """Triangles over the mels of a spectrum's frequencies, each as high as 1: [frequencies, bins].

    Source: Kaldi's feat/mel-computations.h (mel = 1127 ln(1 + Hz / 700)).
    """
    frequencies = np.linspace(0, SAMPLING_RATE / 2, _SIZE // 2 + 1)
    mels = 1127 * np.log(1 + frequencies[:, None] / 700)
    corners = np.linspace(0, 1127 * float(np.log(1 + _HIGHEST_HZ / 700)), bins + 2)
    low, center, high = (corners[i : bins + i] for i in range(3))
    rising, falling = (mels - low) / (center - low), (high - mels) / (high - center)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
