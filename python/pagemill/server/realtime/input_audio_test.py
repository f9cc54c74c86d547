"""The audio buffer: its bounds, its settings, and that all room is returned."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
import soundfile

from pagemill.server.errors import ApiError
from pagemill.server.protocol.realtime_audio import AudioFormat, AudioInput, TurnDetection
from pagemill.server.realtime.input_audio import InputAudio, TurnBegan, TurnEnded
from pagemill.server.realtime.session_room import OwnersRoom, SessionRoom

RATE = 24_000
BY_CLIENT = AudioInput(turn_detection=None)


class Limits:
    """Has what `Media` says of audio."""

    max_audio_s = 4.0
    bytes = 10**6

    def max_bytes(self, kind: str, param: str) -> int:
        return self.bytes


def loud(seconds: float) -> np.ndarray:
    return (np.sin(np.arange(int(seconds * RATE)) / 20) * 8000).astype(np.int16)


def quiet(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), np.int16)


def encoded(samples: np.ndarray) -> str:
    return base64.b64encode(samples.tobytes()).decode()


class Session:
    """A buffer with the room that it takes, which all share."""

    room = SessionRoom.of_sound()

    def __init__(self, settings: AudioInput = BY_CLIENT, *, owner: str = "me") -> None:
        self.limits = Limits()
        room = OwnersRoom(self.room, owner)
        self.audio = InputAudio(room, self.limits)  # pyright: ignore[reportArgumentType]
        self.audio.configure(settings)

    async def append(self, samples: np.ndarray) -> list[TurnBegan | TurnEnded]:
        return [turn async for turn in self.audio.append(encoded(samples))]

    @property
    def taken(self) -> int:
        """Bytes of the room that are in use."""
        return self.room.num_bytes


def check(body: Callable[[Session], Awaitable[None]], settings: AudioInput = BY_CLIENT) -> None:
    session = Session(settings)
    asyncio.run(body(session))
    session.audio.clear()
    assert session.taken == 0 and not session.room.by_owner


def test_a_commit() -> None:
    async def body(session: Session) -> None:
        sent = loud(0.3)
        for part in np.array_split(sent, 7):
            assert not await session.append(part)
        assert session.taken == sent.nbytes
        sound = session.audio.commit()
        found, rate = soundfile.read(io.BytesIO(sound.take()), dtype="int16")
        assert rate == RATE and np.array_equal(found, sent)
        assert sound.duration_s == 0.3 and session.taken == sent.nbytes
        sound.discard()
        sound.discard()
        assert session.taken == 0

    check(body)


def test_a_commit_needs_a_tenth_of_a_second() -> None:
    async def body(session: Session) -> None:
        await session.append(loud(0.09))
        with pytest.raises(ApiError) as refused:
            session.audio.commit()
        assert refused.value.type_name == "input_audio_buffer_commit_empty"
        assert "90 ms" in refused.value.message
        await session.append(loud(0.02))
        session.audio.commit().discard()

    check(body)


def test_the_buffer_is_as_long_as_a_file() -> None:
    async def body(session: Session) -> None:
        await session.append(loud(3.5))
        with pytest.raises(ApiError, match="more than 4 s of audio"):
            await session.append(loud(0.6))
        assert session.taken == loud(3.5).nbytes  # as before
        session.limits.bytes = 48_044
        with pytest.raises(ApiError, match="more than 1 s of audio"):
            await session.append(loud(0.6))

    check(body)


def test_all_sessions_share_a_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "room", SessionRoom.of_sound(20_000))

    async def body(session: Session) -> None:
        await session.append(loud(0.2))
        with pytest.raises(ApiError, match="Your sessions have more than 10000 bytes") as refused:
            await session.append(loud(0.1))
        assert refused.value.status == 429
        other, third = Session(owner="other"), Session(owner="third")
        await other.append(loud(0.2))
        with pytest.raises(ApiError, match="Sessions have more than 20000 bytes") as refused:
            await third.append(loud(0.1))
        assert refused.value.status == 429
        other.audio.clear()
        await third.append(loud(0.1))
        third.audio.clear()
        sound = session.audio.commit()
        with pytest.raises(ApiError):
            await session.append(loud(0.1))
        sound.discard()
        await session.append(loud(0.1))

    check(body)


def test_turns() -> None:
    async def body(session: Session) -> None:
        for _ in range(20):
            assert not await session.append(quiet(0.5))
            assert session.taken <= 2 * 0.37 * RATE  # what may be in front of a turn
        (began,) = await session.append(loud(0.5))
        assert began == TurnBegan(9_700)
        (ended,) = await session.append(quiet(0.7))
        assert isinstance(ended, TurnEnded) and ended.at_ms == 11_000
        assert ended.sound.duration_s == 1.3
        ended.sound.discard()
        # A whole conversation in one event, which is read in a thread.
        turns = await session.append(np.concatenate([loud(0.5), quiet(0.7)] * 2))
        assert [type(turn) for turn in turns] == [TurnBegan, TurnEnded] * 2
        for turn in turns:
            if isinstance(turn, TurnEnded):
                turn.sound.discard()
        await session.append(loud(0.5))
        sound = session.audio.commit()  # the client may end a turn itself
        sound.discard()
        assert await session.append(loud(0.5)) == [TurnBegan(14_100)]

    check(body, AudioInput())


def test_settings_change_between_turns() -> None:
    async def body(session: Session) -> None:
        await session.append(loud(0.5))
        with pytest.raises(ApiError, match="input_audio_buffer.clear"):
            session.audio.configure(AudioInput(format=AudioFormat(type="audio/pcmu")))
        # What was appended without turn detection is looked at with it.
        session.audio.configure(AudioInput(turn_detection=TurnDetection(prefix_padding_ms=0)))
        (began, ended) = await session.append(quiet(1))
        assert began == TurnBegan(0) and isinstance(ended, TurnEnded)
        ended.sound.discard()
        session.audio.clear()
        half = AudioFormat(rate=RATE // 2)
        session.audio.configure(AudioInput(format=half, turn_detection=TurnDetection()))
        assert await session.append(loud(0.5)) == [TurnBegan(1_500)]

    check(body)
