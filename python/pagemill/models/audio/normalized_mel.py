"""Log-mel spectrograms whose bins have the mean 0 and the deviation 1 over an audio, as NeMo and
Cohere's feature extractor make them.

mel = normalized_log_mel(samples, bins=128)      # [frames, 128]
"""

from __future__ import annotations

import numpy as np

from pagemill.models.audio.log_mel import HOP, WINDOW, slaney_filters

LEAST_SAMPLES = 2 * HOP
"""Of audio: one frame has no deviation."""
_SIZE = 512  # samples of a spectrum, in the middle of which the window is
_PREEMPHASIS = np.float32(0.97)
_FLOOR = np.float32(2**-24)
_LEAST_DEVIATION = np.float32(1e-5)
_BLOCK = 3000  # frames that are transformed at a time


def normalized_log_mel(samples: np.ndarray, bins: int) -> np.ndarray:
    """Samples [n], at least LEAST_SAMPLES, from -1 to 1 -> [n / HOP, bins].

    The numbers are those of `CohereAsrFeatureExtractor` of `transformers` without its dither, noise
    of 1e-5.
    """
    samples = samples.astype(np.float32)
    emphasized = np.append(samples[:1], samples[1:] - _PREEMPHASIS * samples[:-1])
    around = np.pad(emphasized, _SIZE // 2)
    first = (_SIZE - WINDOW) // 2
    windows = np.lib.stride_tricks.sliding_window_view(around[first:], WINDOW)[::HOP]
    windows = windows[: len(samples) // HOP]
    hann, filters = np.hanning(WINDOW).astype(np.float32), slaney_filters(bins, _SIZE).T
    mel = np.empty((len(windows), bins), np.float32)
    for begin in range(0, len(windows), _BLOCK):
        spectrum = np.fft.rfft(windows[begin : begin + _BLOCK] * hann, _SIZE)
        power = (np.abs(spectrum) ** 2).astype(np.float32)
        mel[begin : begin + _BLOCK] = power @ filters
    np.log(mel + _FLOOR, out=mel)
    return (mel - mel.mean(axis=0)) / (mel.std(axis=0, ddof=1) + _LEAST_DEVIATION)
