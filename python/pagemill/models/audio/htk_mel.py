"""Log-mel spectrograms as Granite Speech's feature extractor makes them: of torchaudio's
`MelSpectrogram`, whose mel scale is HTK's.

mel = htk_log_mel(samples, bins=80)      # [frames, 80]
"""

from __future__ import annotations

import math

import numpy as np

from pagemill.models.audio.log_mel import HOP, SAMPLING_RATE, WINDOW

SIZE = 512
"""Samples of a spectrum, in the middle of which the window is."""
LEAST_SAMPLES = SIZE // 2 + 1
"""Of audio: it is mirrored at its ends."""
_FLOOR = 1e-10
_RANGE = 8.0  # of log10 below the largest value; what is lower is raised
_BLOCK = 3000  # frames that are transformed at a time


def htk_log_mel(samples: np.ndarray, bins: int) -> np.ndarray:
    """Samples [n], at least LEAST_SAMPLES, from -1 to 1 -> [n / HOP + 1, bins], about from -1 to
    1."""
    around = np.pad(samples.astype(np.float32), SIZE // 2, mode="reflect")
    first = (SIZE - WINDOW) // 2
    windows = np.lib.stride_tricks.sliding_window_view(around[first:], WINDOW)[::HOP]
    windows = windows[: len(samples) // HOP + 1]
    hann = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
    filters = htk_filters(bins)
    mel = np.empty((len(windows), bins), np.float32)
    for begin in range(0, len(windows), _BLOCK):
        spectrum = np.fft.rfft(windows[begin : begin + _BLOCK] * hann, SIZE)
        power = (np.abs(spectrum) ** 2).astype(np.float32)
        mel[begin : begin + _BLOCK] = power @ filters
    np.log10(np.maximum(mel, _FLOOR), out=mel)
    np.maximum(mel, mel.max() - _RANGE, out=mel)
    return mel / 4 + 1


def htk_filters(bins: int) -> np.ndarray:
    """Triangles over the frequencies of a spectrum of SIZE samples, each as high as 1:
    [frequencies, bins].

    Source: the HTK Book, 5.6 (mel = 2595 log10(1 + Hz / 700)).
    """
    highest = SAMPLING_RATE / 2
    frequencies = np.linspace(0, highest, SIZE // 2 + 1)[:, None]
    mels = np.linspace(0, 2595 * math.log10(1 + highest / 700), bins + 2)
    corners = 700 * (10 ** (mels / 2595) - 1)
    low, center, high = (corners[i : bins + i] for i in range(3))
    rising = (frequencies - low) / (center - low)
    falling = (high - frequencies) / (high - center)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
