"""Long audio in clips that a model takes, cut where it is quiet.

for clip in cut(samples, RATE, max_clip_s=30):
    ...
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_SEARCHED_S = 1  # before the longest possible end of a clip
_WINDOW = 1600  # samples, 0.1 s


class Clip(NamedTuple):
    """Samples, float32, and when they begin."""

    samples: np.ndarray
    start_s: float
    duration_s: float


def cut(samples: np.ndarray, rate: int, max_clip_s: int | None) -> list[Clip]:
    """The clips of `samples`, float32 [samples] at `rate` a second: each of at most `max_clip_s`
    seconds, or all of it if None. Each ends in the middle of the quietest tenth of its last
    possible second."""
    longest = len(samples) if max_clip_s is None else max_clip_s * rate
    clips: list[Clip] = []
    start = 0
    while len(samples) - start > longest:
        end = start + longest
        searched = samples[end - _SEARCHED_S * rate : end]
        end += _quietest(searched) - len(searched)
        clips.append(_clip(samples[start:end], start, rate))
        start = end
    clips.append(_clip(samples[start:], start, rate))
    return clips


def _quietest(samples: np.ndarray) -> int:
    """The middle of the window with the least energy."""
    windows = samples[: len(samples) // _WINDOW * _WINDOW].reshape(-1, _WINDOW)
    energy = np.square(windows, dtype=np.float64).sum(axis=1)
    return int(energy.argmin()) * _WINDOW + _WINDOW // 2


def _clip(samples: np.ndarray, start: int, rate: int) -> Clip:
    return Clip(samples, start / rate, len(samples) / rate)
