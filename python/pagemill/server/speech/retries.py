"""Clips whose text repeats itself, written again at higher temperatures, as the authors of Whisper
do: greedy decoding of speech that is hard to hear may end in a loop."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from pagemill.render.transcription.base import Transcription
from pagemill.server.errors import ApiError
from pagemill.server.protocol.transcription import SpeechRequest
from pagemill.server.rendering import Renderer
from pagemill.server.respond import FoldedChoice, whole_choices
from pagemill.server.speech.start import StartedSpeech

_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
_MAX_COMPRESSION = 2.4
"""Of text that is not repeated. Both are from openai/whisper."""


@dataclass(frozen=True, slots=True)
class WrittenClip:
    """What was written of a clip, and at which temperature."""

    choice: FoldedChoice
    temperature: float


def compression_ratio(text: str) -> float:
    """How much shorter zlib makes a text; 1 for no text."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 1.0


async def written_clips(
    started: StartedSpeech, request: SpeechRequest, renderer: Renderer, family: Transcription
) -> list[WrittenClip]:
    """What was written of each clip. Greedy text that repeats itself is replaced by the one that
    repeats itself least, of those at all temperatures up to the first that does not. What is
    written stays if another generation is refused or fails, for want of time for example.

    Raises:
        ApiError: the first generation failed.
    """

    def ratio(at: int, choice: FoldedChoice) -> float:
        if not request.is_timed:
            return compression_ratio(choice.message.text)
        spans = family.spans(choice.token_ids, started.clips[at].duration_s)
        tokens = [choice.token_ids[token] for span in spans for token in span.at]
        return compression_ratio(renderer.decode(tokens))

    choices = await whole_choices(started.generation)
    clips = [WrittenClip(choice, request.temperature or 0.0) for choice in choices]
    ratios = [ratio(at, choice) for at, choice in enumerate(choices)]
    for temperature in () if request.temperature else _TEMPERATURES:
        repeated = [at for at, found in enumerate(ratios) if found > _MAX_COMPRESSION]
        if not repeated:
            break
        try:
            again = await whole_choices(await started.again(repeated, temperature))
        except ApiError:
            break
        for at, choice in zip(repeated, again, strict=True):
            if (found := ratio(at, choice)) < ratios[at]:
                clips[at], ratios[at] = WrittenClip(choice, temperature), found
    return clips
