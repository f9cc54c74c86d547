"""Clips whose text repeats itself, written again at higher temperatures, as the authors of Whisper
do: greedy decoding of speech that is hard to hear may end in a loop."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.render.transcription.base import Transcription
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
    repeats itself least, of those at all temperatures up to the first that does not.

    Raises:
        ApiError: a generation was refused or failed.
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
        again = await whole_choices(await started.again(repeated, temperature))
        for at, choice in zip(repeated, again, strict=True):
            if (found := ratio(at, choice)) < ratios[at]:
                clips[at], ratios[at] = WrittenClip(choice, temperature), found
    return clips


def all_written(clips: Sequence[WrittenClip]) -> str:
    """The text of all clips."""
    return "".join(clip.choice.message.text for clip in clips).strip()
