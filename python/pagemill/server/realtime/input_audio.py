"""The audio buffer of a session, and the turns in it.

audio = InputAudio(room, media)
async for turn in audio.append(event.audio):   # what was found in it
    ...
sound = audio.commit()                         # without turn detection
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, ParamSpec, TypeVar

from pagemill.server.errors import ApiError, bad_request
from pagemill.server.media import Media
from pagemill.server.protocol.realtime_audio import AudioInput
from pagemill.server.realtime.session_room import OwnersRoom
from pagemill.server.realtime.sound import HEADER_BYTES, SAMPLE_BYTES, rate_of, samples_of
from pagemill.server.realtime.sound_buffer import Sound, SoundBuffer
from pagemill.server.realtime.turn_detector import TurnDetector

P = ParamSpec("P")
T = TypeVar("T")
_MIN_MS = 100  # of a turn that a client commits; OpenAI's
_INLINE = 2**16  # characters of base64 or samples, which take less than half a millisecond


class TurnBegan(NamedTuple):
    """Speech was found. `at_ms` counts from the first sample of the session."""

    at_ms: int


class TurnEnded(NamedTuple):
    """A turn is over: its sound, which is not in the buffer any more."""

    at_ms: int
    sound: Sound


class InputAudio:
    """What a client appends, by the `settings` of the session. Belongs to one event loop."""

    def __init__(self, room: OwnersRoom, media: Media) -> None:
        """`media` says how long audio may be."""
        self._media = media
        self._buffer = SoundBuffer(room)
        self._detector: TurnDetector | None = None
        self.settings = AudioInput()

    def configure(self, settings: AudioInput) -> None:
        """Changes the settings. A turn that was begun goes on if turns are found as before.

        Raises:
            ApiError: 400: the buffer has audio in another format.
        """
        before = self.settings
        if settings.format != before.format and len(self._buffer) > 0:
            raise bad_request(
                "`audio.input.format` cannot change while the buffer has audio: send"
                " `input_audio_buffer.clear` first.",
                "audio",
            )
        if settings.format != before.format:
            rate, rate_before = rate_of(settings.format), rate_of(before.format)
            self._buffer.end = self._buffer.end * rate // rate_before
            self._detector = None
        if settings.turn_detection != before.turn_detection:
            self._detector = None
        self.settings = settings

    async def append(self, audio: str) -> AsyncGenerator[TurnBegan | TurnEnded]:
        """Appends `audio`, base64 of sound; the turns that begin and end in it, in order.

        Raises:
            ApiError: 400: it is not that, or there would be more than a file may have; 429:
                sessions have too much.
        """
        if not audio:
            raise bad_request("`audio` is required: base64 of sound.", "audio")
        options, rate = self.settings.turn_detection, rate_of(self.settings.format)
        samples = await off_loop(len(audio), samples_of, audio, self.settings.format)
        longest = self._max_samples(rate)
        if options is None and len(self._buffer) + len(samples) > longest:
            raise bad_request(
                f"The audio buffer would have more than {longest / rate:.0f} s of audio"
                " (--max-audio-seconds, --max-audio-bytes): commit it first.",
                "audio",
            )
        self._buffer.append(samples.tobytes())
        if options is None:
            return
        if self._detector is None:
            self._detector = TurnDetector(options, rate, longest, self._buffer.first)
            samples = self._buffer.samples
        detector = self._detector
        for edge in await off_loop(len(samples), detector.feed, samples):
            at_ms = 1000 * edge.at // rate
            if edge.begins:
                self._buffer.drop(edge.at)
                yield TurnBegan(at_ms)
            else:
                yield TurnEnded(at_ms, self._buffer.take(edge.at, rate))
        self._buffer.drop(detector.needed_from)

    def commit(self) -> Sound:
        """All that the buffer has, which is a turn.

        Raises:
            ApiError: 400: it has less than 100 ms.
        """
        rate = rate_of(self.settings.format)
        has_ms = 1000 * len(self._buffer) // rate
        if has_ms < _MIN_MS:
            raise ApiError(
                400,
                f"The audio buffer has {has_ms} ms of audio; a turn has at least {_MIN_MS} ms:"
                " append more.",
                "type",
                "input_audio_buffer_commit_empty",
            )
        sound = self._buffer.take(self._buffer.end, rate)
        self._restart()
        return sound

    def clear(self) -> None:
        """Forgets what the buffer has."""
        self._buffer.clear()
        self._restart()

    def _restart(self) -> None:
        if self._detector is not None:
            self._detector.restart(self._buffer.end)

    def _max_samples(self, rate: int) -> int:
        """Of a turn: those of the longest file."""
        size = self._media.max_bytes("audio", "audio") - HEADER_BYTES
        return min(size // SAMPLE_BYTES, int(self._media.max_audio_s * rate))


async def off_loop(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` on `size` characters or samples, in a thread if they are many."""
    if size <= _INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
