"""Log-mel spectrograms as Whisper's feature extractor makes them.

mel = log_mel(padded(samples, multiple=480_000), bins=128)     # [128, 3000]
"""

from __future__ import annotations

import numpy as np

SAMPLING_RATE = 16_000
"""Samples a second of the audio."""
HOP = 160
"""Samples from one frame to the next."""
WINDOW = 400
"""Samples of a frame."""
_FLOOR = 1e-10
_RANGE = 8.0  # of log10 below the largest value; what is lower is raised
_BLOCK = 3000  # frames that are transformed at a time

# Slaney's mel scale: linear up to 1 kHz, then logarithmic.
_HZ_OF_LINEAR_MEL = 200 / 3
_LOG_HZ, _LOG_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27


def padded(samples: np.ndarray, multiple: int) -> np.ndarray:
    """Samples [n] with silence behind them, a multiple of so many and at least one."""
    count = max(1, -(-len(samples) // multiple)) * multiple
    return np.pad(samples, (0, count - len(samples)))


def log_mel(samples: np.ndarray, bins: int) -> np.ndarray:
    """Samples [n] of at least two frames, from -1 to 1 -> [bins, n / HOP], about from -1 to 1.

    The numbers are those of `WhisperFeatureExtractor` of `transformers` within 1e-4.
    """
    half = WINDOW // 2
    around = np.pad(samples.astype(np.float32), (half, half), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(around, WINDOW)[::HOP]
    windows = windows[: len(samples) // HOP]
    hann = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
    filters = slaney_filters(bins, WINDOW)
    mel = np.empty((bins, len(windows)), np.float32)
    for first in range(0, len(windows), _BLOCK):
        spectrum = np.fft.rfft(windows[first : first + _BLOCK] * hann)
        power = (np.abs(spectrum) ** 2).astype(np.float32)
        mel[:, first : first + _BLOCK] = filters @ power.T
    np.log10(np.maximum(mel, _FLOOR), out=mel)
    np.maximum(mel, mel.max() - _RANGE, out=mel)
    return (mel + 4) / 4


def slaney_filters(bins: int, size: int) -> np.ndarray:
    """Triangles over the frequencies of a spectrum of `size` samples, each with the same area:
    [bins, frequencies].

    Source: Slaney, Auditory Toolbox, 1998.
    """
    highest = SAMPLING_RATE / 2
    frequencies = np.linspace(0, highest, size // 2 + 1)
    corners = _hz(np.linspace(0, _mel(highest), bins + 2))
    low, center, high = (corners[i : bins + i, None] for i in range(3))
    rising = (frequencies - low) / (center - low)
    falling = (high - frequencies) / (high - center)
    triangles = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return triangles.astype(np.float32)


def _mel(hz: float) -> float:
    if hz < _LOG_HZ:
        return hz / _HZ_OF_LINEAR_MEL
    return _LOG_MEL + np.log(hz / _LOG_HZ) / _LOG_STEP


def _hz(mel: np.ndarray) -> np.ndarray:
    logarithmic = _LOG_HZ * np.exp(_LOG_STEP * (mel - _LOG_MEL))
    return np.where(mel < _LOG_MEL, mel * _HZ_OF_LINEAR_MEL, logarithmic)
