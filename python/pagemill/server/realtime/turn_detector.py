"""Where turns of speech begin and end in a stream of sound, by its loudness.

    detector = TurnDetector(TurnDetection(), rate=24_000, max_samples=24_000 * 60)
    for edge in detector.feed(samples):   # int16 [samples], as they come
        ...

A frame of 20 ms is loud if it is louder than the noise, whose level is followed, and than quiet
rooms are. Three loud frames in a row begin a turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagemill.server.protocol.realtime_audio import TurnDetection

_FRAMES_A_SECOND = 50
_ONSET_FRAMES = 3  # 60 ms: a click is shorter, and a syllable longer
# By `threshold` t from 0 to 1: a frame is loud from t * _MARGIN_DB above the noise on, if that is
# at least _QUIETEST_DB + t * _RANGE_DB below a full-scale square wave. At 0.5 that is 12 dB above
# the noise, and -45 dB; speech near a microphone has -30 to -15 dB.
_MARGIN_DB, _QUIETEST_DB, _RANGE_DB = 24.0, -60.0, 30.0
# The noise follows quieter frames in 0.1 s, as there are between words, and louder ones by 5 dB a
# second, so that a fan that begins is no speech after some seconds.
_FALL, _RISE_DB = 0.2, 5.0 / _FRAMES_A_SECOND
_SILENCE = 1e-10  # of full scale, as power: the logarithm of 0 is none
_FULL_SCALE = 2.0**30  # the power of int16


class Edge(NamedTuple):
    """A turn begins with the sample `at`, or ends in front of it; counted from the first sample of
    the stream."""

    at: int
    begins: bool


class TurnDetector:
    """A turn begins `prefix_padding_ms` before its first loud frame, and ends when no frame was
    loud for `silence_duration_ms`, or with `max_samples`. Turns do not overlap."""

    def __init__(self, options: TurnDetection, rate: int, max_samples: int, begin: int = 0) -> None:
        """`begin`: the number of the next sample."""
        self._frame = rate // _FRAMES_A_SECOND
        self._prefix = rate * options.prefix_padding_ms // 1000
        self._silence = rate * options.silence_duration_ms // 1000
        self._max_samples = max_samples
        self._margin = options.threshold * _MARGIN_DB
        self._least = _QUIETEST_DB + options.threshold * _RANGE_DB
        self._floor = self._least - self._margin  # quieter noise changes nothing
        self._noise = self._floor
        self.restart(begin)

    def restart(self, begin: int) -> None:
        """No turn is in progress, and none begins before `begin`, the number of the next sample."""
        self._rest = np.zeros(0, np.int16)  # less than a frame
        self._at = begin  # the end of the last frame
        self._start: int | None = None  # of the turn
        self._free = begin  # where the next turn may begin
        self._run = 0  # frames: loud ones, or quiet ones in a turn

    @property
    def needed_from(self) -> int:
        """The number of the first sample that a turn may still have."""
        if self._start is not None:
            return self._start
        return max(self._free, self._at - _ONSET_FRAMES * self._frame - self._prefix)

    def feed(self, samples: np.ndarray) -> list[Edge]:
        """The edges in the next `samples`, int16 [samples]."""
        joined = np.concatenate([self._rest, samples])
        whole = len(joined) - len(joined) % self._frame
        self._rest = joined[whole:]
        frames = joined[:whole].reshape(-1, self._frame)
        power = np.var(frames, axis=1, dtype=np.float32) / _FULL_SCALE  # without an offset
        levels: list[float] = (10 * np.log10(power + _SILENCE)).tolist()
        found = [self._edge(level) for level in levels]
        return [edge for edge in found if edge is not None]

    def _edge(self, level: float) -> Edge | None:
        is_loud = level >= max(self._noise + self._margin, self._least)
        change = level - self._noise
        self._noise += change * _FALL if change < 0 else min(change, _RISE_DB)
        self._noise = max(self._noise, self._floor)
        self._at += self._frame
        if self._start is None:
            self._run = self._run + 1 if is_loud else 0
            if self._run < _ONSET_FRAMES:
                return None
            begin = self._at - self._run * self._frame - self._prefix
            self._start, self._run = max(self._free, begin), 0
            return Edge(self._start, begins=True)
        self._run = 0 if is_loud else self._run + 1
        is_over = self._run * self._frame >= self._silence
        if not is_over and self._at - self._start < self._max_samples:
            return None
        self._start, self._run, self._free = None, 0, self._at
        return Edge(self._at, begins=False)
