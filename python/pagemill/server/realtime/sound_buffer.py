"""Sound that a client has sent, until it is a turn: in memory, and bounded over all sessions."""

from __future__ import annotations

import numpy as np

from pagemill.server.protocol.transcription import UploadedAudio
from pagemill.server.realtime.session_room import OwnersRoom
from pagemill.server.realtime.sound import SAMPLE_BYTES, wav_file


class Sound(UploadedAudio):
    """Committed sound. It takes its room until it is discarded."""

    def __init__(self, samples: bytes, rate: int, room: OwnersRoom) -> None:
        self._samples = samples
        self._rate = rate
        self._room = room
        self._taken = len(samples)
        self.duration_s = len(samples) / SAMPLE_BYTES / rate

    def take(self) -> bytes:
        """A WAV file. See `UploadedAudio`."""
        return wav_file(self._samples, self._rate)

    @property
    def num_bytes(self) -> int:
        """Of its samples, until it is discarded."""
        return self._taken

    def discard(self) -> None:
        """See `UploadedAudio`."""
        self._room.give(self._taken)
        self._samples, self._taken = b"", 0


class SoundBuffer:
    """The samples `first` to `end` of all that a session has sent."""

    def __init__(self, room: OwnersRoom) -> None:
        self._room = room
        self._samples = bytearray()
        self.end = 0

    @property
    def first(self) -> int:
        """The number of the first sample that is there."""
        return self.end - len(self)

    def __len__(self) -> int:
        """How many samples are there."""
        return len(self._samples) // SAMPLE_BYTES

    @property
    def samples(self) -> np.ndarray:
        """Those that are there, int16 [samples]; a copy."""
        return np.frombuffer(bytes(self._samples), np.int16)

    def append(self, samples: bytes) -> None:
        """Appends `samples`.

        Raises:
            ApiError: 429: there is no room for them.
        """
        self._room.take(len(samples))
        self._samples += samples
        self.end += len(samples) // SAMPLE_BYTES

    def drop(self, until: int) -> None:
        """Forgets what comes before the sample `until`."""
        size = max(0, until - self.first) * SAMPLE_BYTES
        self._room.give(min(size, len(self._samples)))
        del self._samples[:size]

    def take(self, until: int, rate: int) -> Sound:
        """What comes before the sample `until`, which is not in the buffer any more; `rate` samples
        are a second."""
        size = (until - self.first) * SAMPLE_BYTES
        with memoryview(self._samples) as samples:
            sound = Sound(bytes(samples[:size]), rate, self._room)
        del self._samples[:size]
        return sound

    def clear(self) -> None:
        """Forgets all."""
        self.drop(self.end)
