"""When each word of a transcription is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagemill.render.transcription.alignment import Heard, token_times
from pagemill.render.transcription.base import Span
from pagemill.render.transcription.words import words
from pagemill.server.protocol.transcription import SpeechRequest, TranslationRequest, Word
from pagemill.server.rendering import Renderer
from pagemill.server.speech.retries import WrittenClip
from pagemill.server.speech.speech import ClipTimes, Speech
from pagemill.server.speech.start import StartedSpeech


async def spoken_words(
    request: SpeechRequest,
    started: StartedSpeech,
    written: Sequence[WrittenClip],
    renderer: Renderer,
    speech: Speech,
) -> list[Word]:
    """The words of all clips, one after another. A few clips of all requests are timed at once.

    Raises:
        ApiError: the engine refuses that, or fails.
    """
    translates = isinstance(request, TranslationRequest)
    language = request.to_language if translates else started.language
    found: list[Word] = []
    for at, (clip, each) in enumerate(zip(started.clips, written, strict=True)):
        token_ids = each.choice.token_ids
        spans = speech.family.spans(token_ids, clip.duration_s)
        if not spans:
            continue
        await speech.timing.take(1)
        try:
            heard = await started.hear(at, token_ids)
            found += await speech.timing_threads.run(
                "", _words, renderer.decode, token_ids, spans, heard, clip, language
            )
        finally:
            speech.timing.give(1)
    return found


def _words(
    decode: Callable[[Sequence[int]], str],
    token_ids: Sequence[int],
    spans: Sequence[Span],
    heard: Heard,
    clip: ClipTimes,
    language: str | None,
) -> list[Word]:
    """The words of one clip. A token begins where the one in front of it finds it, and ends where
    the next one begins."""
    begins = [0.0, *token_times(heard, clip.duration_s).tolist()]

    def seconds(at: int) -> float:
        return round(clip.start_s + begins[min(at, len(begins) - 1)], 3)

    found: list[Word] = []
    for span in spans:
        tokens = [token_ids[at] for at in span.at]
        for group in words(decode, tokens, language):
            text = decode([tokens[at] for at in group]).strip()
            if text:
                start, end = span.at[group[0]], span.at[group[-1]] + 1
                found.append(Word(text, seconds(start), seconds(end)))
    return found
