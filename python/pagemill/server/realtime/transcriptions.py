"""Transcriptions of a session's turns: one after another, in the order of the turns.

    transcriptions.add(Turn(item_id, sound, transcriber), socket)
    await transcriptions.room(socket)     # until a further one may be added
    await transcriptions.close()

A session has few of them at a time: until there is room, no event of its client is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pagemill.render.transcription.base import SpeechTask
from pagemill.server.access.caller import Caller, admitted
from pagemill.server.answer import Socket
from pagemill.server.errors import ApiError, aborted, bad_request
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.realtime import EventError
from pagemill.server.protocol.realtime_audio import InputTranscription
from pagemill.server.protocol.transcription import TranscriptionRequest
from pagemill.server.realtime.deltas import deltas
from pagemill.server.realtime.refusals import event_error
from pagemill.server.realtime.response import Say
from pagemill.server.realtime.sound_buffer import Sound
from pagemill.server.realtime.transcript_events import ItemEvents, TranscriptEvents
from pagemill.server.speech.clip_texts import ClipTexts
from pagemill.server.speech.speech import Speech
from pagemill.server.speech.start import StartedSpeech, check_task, start_speech
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")
_MAX_WAITING = 4
_LOOK_S = 0.5  # how often it is looked whether the client is gone


class Transcriber(NamedTuple):
    """A model that transcribes, and what a session wants of it."""

    pipeline: Pipeline
    speech: Speech
    settings: InputTranscription


def transcriber_of(
    server: ServerState, caller: Caller, settings: InputTranscription, model: str | None
) -> Transcriber:
    """What transcribes by these settings; `model` is that of the session.

    Raises:
        ApiError: 404: there is no such model; 400: it does not transcribe, or not with these
            settings.
    """
    pipeline = server.models.resolve(settings.model or model, caller).model
    if pipeline.speech is None:
        raise bad_request(
            f"`audio.input.transcription`: the model `{pipeline.model.name}` does not transcribe;"
            " send null.",
            "audio",
        )
    check_task(pipeline.speech, SpeechTask(settings.language, prompt=settings.prompt))
    return Transcriber(pipeline, pipeline.speech, settings)


class Turn(NamedTuple):
    """The sound of an item, and what transcribes it."""

    item_id: str
    sound: Sound
    by: Transcriber


class Transcriptions:
    """Of one session. Belongs to one event loop."""

    def __init__(
        self,
        server: ServerState,
        caller: Caller,
        say: Say,
        written: Callable[[str, str], None],
    ) -> None:
        """`written` is called with the item's id and what is said in it, before the client is
        told."""
        self._server = server
        self._caller = caller
        self.events: TranscriptEvents = ItemEvents(say)
        """What says them; may change before the first turn."""
        self._written = written
        self._turns: deque[Turn] = deque()
        self._fewer = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    @property
    def are_done(self) -> bool:
        """Whether none is in progress or waits."""
        return not self._turns

    def add(self, turn: Turn, socket: Socket) -> None:
        """Transcribes a turn, and discards its sound at the end."""
        self._turns.append(turn)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(socket))

    async def room(self, socket: Socket) -> None:
        """Waits until a further one may be added, or the client is gone."""
        while len(self._turns) >= _MAX_WAITING and not socket.is_over:
            self._fewer.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._fewer.wait(), _LOOK_S)

    async def close(self) -> None:
        """Ends what is in progress, and forgets what waits."""
        if self._working is not None:
            self._working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._working
        for turn in self._turns:
            turn.sound.discard()
        self._turns.clear()

    async def _work(self, socket: Socket) -> None:
        while self._turns:
            turn = self._turns[0]
            await self._transcribe(turn, socket)
            turn.sound.discard()
            self._turns.popleft()
            self._fewer.set()

    async def _transcribe(self, turn: Turn, socket: Socket) -> None:
        try:
            await self._text(turn, socket)
        except ApiError as error:
            self.events.failed(turn.item_id, event_error(error))
        except Exception:
            _LOGGER.exception("a transcription of a realtime session failed")
            message = "The server failed; its log says more."
            failure = EventError(type="server_error", code="InternalServerError", message=message)
            self.events.failed(turn.item_id, failure)

    async def _text(self, turn: Turn, socket: Socket) -> None:
        request = TranscriptionRequest(
            file=turn.sound,
            language=turn.by.settings.language,
            prompt=turn.by.settings.prompt,
            stream=True,
        )
        asking = replace(self._caller, began=time.monotonic())
        with admitted(asking, self._server.limiter) as caller:
            started = await start_speech(turn.by.pipeline, turn.by.speech, request, caller)
            try:
                await self._say_text(turn, started, socket)
            finally:
                started.generation.close()
                started.release()

    async def _say_text(self, turn: Turn, started: StartedSpeech, socket: Socket) -> None:
        """Says each part of the text as it comes, and all of it."""
        texts = ClipTexts(len(started.clips), speakers=started.speakers)
        whole = ""
        interval = self._server.config.stream_interval
        async for delta in deltas(started.generation, socket, interval):
            text = texts.add(delta.index, delta)
            whole += text
            if text:
                self.events.delta(turn.item_id, text)
        if texts.was_aborted:
            raise aborted()
        whole = whole.strip()
        self._written(turn.item_id, whole)
        usage = started.generation.usage
        self.events.completed(turn.item_id, whole, turn.sound.duration_s, usage)
