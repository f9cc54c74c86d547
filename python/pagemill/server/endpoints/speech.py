"""`/v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.protocol.transcription import (
    SpeechRequest,
    TranscriptionRequest,
    TranslationRequest,
)
from pagemill.server.respond import ResponseEvents
from pagemill.server.speech.retries import written_clips
from pagemill.server.speech.start import start_speech
from pagemill.server.speech.wording import SpeechStream, whole_answer
from pagemill.server.speech.words import spoken_words
from pagemill.server.state import ServerState


async def transcribe(server: ServerState, body: TranscriptionRequest, caller: Caller) -> Answer:
    """Writes what is said in a file of audio."""
    return await _answer(server, body, caller, "trsc")


async def translate(server: ServerState, body: TranslationRequest, caller: Caller) -> Answer:
    """Writes what is said in a file of audio, in another language."""
    return await _answer(server, body, caller, "trsl")


async def _answer(server: ServerState, body: SpeechRequest, caller: Caller, prefix: str) -> Answer:
    pipeline, _ = server.models.resolve(body.model, caller)
    speech = server.models.speech
    started = await start_speech(pipeline, speech, body, caller)
    generation = started.generation
    if body.stream:
        generation.on_close = started.release
        request_id = "" if caller.record is None else caller.record.request_id
        wording = SpeechStream(pipeline, body, f"{prefix}-{request_id}", started)
        return ResponseEvents(generation, wording, server.config.stream_interval)
    renderer, family, words = pipeline.renderer, speech.family, None
    try:
        clips = await written_clips(started, body, renderer, family)
        if body.wants_words:
            words = await spoken_words(body, started, clips, renderer, speech)
    finally:
        started.release()
    return whole_answer(body, started, clips, renderer, family, words)
