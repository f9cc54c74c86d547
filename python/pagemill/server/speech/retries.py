"""Clips whose text repeats itself, written again at higher temperatures, as the authors of Whisper
do: greedy decoding of speech that is hard to hear may end in a loop."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.render.transcription.base import Transcription
from pagemill.render.transcription.turns import without_marks
from pagemill.server.errors import ApiError, aborted
from pagemill.server.generation import Generation
from pagemill.server.protocol.transcription import SpeechRequest
from pagemill.server.rendering import Renderer
from pagemill.server.respond import FoldedChoice, whole_choices
from pagemill.server.speech.start import StartedSpeech

_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
_MAX_COMPRESSION = 2.4
"""Of text that is not repeated."""
_MOST_TRUSTED = 0.5
"""What was written again at a higher temperature is not shown to the clips behind it. All three are
from openai/whisper."""
_COMPARED = 2000
"""Characters, more than are said in 30 s. Longer texts repeat words, and zlib makes less of
them."""


@dataclass(frozen=True, slots=True)
class WrittenClip:
    """What was written of a clip, and at which temperature."""

    choice: FoldedChoice
    temperature: float


def compression_ratio(text: str) -> float:
    """How much shorter zlib makes a text; 1 for no text."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 1.0


def repetition(text: str) -> float:
    """The compression ratio of the part of a text that repeats itself most."""
    firsts = range(0, max(1, len(text)), _COMPARED)
    return max(compression_ratio(text[first : first + _COMPARED]) for first in firsts)


class _Writer:
    """Writes clips until their text does not repeat itself."""

    def __init__(
        self,
        started: StartedSpeech,
        request: SpeechRequest,
        renderer: Renderer,
        family: Transcription,
    ) -> None:
        self._started = started
        self._request = request
        self._renderer = renderer
        self._family = family

    def text(self, at: int, choice: FoldedChoice) -> str:
        """What `choice` says of the clip with the number `at`, without its timestamps."""
        if self._family.speakers:
            return without_marks(choice.message.text)
        if not self._request.is_timed:
            return choice.message.text
        spans = self._family.spans(choice.token_ids, self._started.clips[at].duration_s)
        return self._renderer.decode([choice.token_ids[i] for span in spans for i in span.at])

    async def written(
        self, numbers: Sequence[int], generation: Generation, said: str
    ) -> list[WrittenClip]:
        """What is written of the clips with these `numbers`, which `generation` begins with, behind
        what was `said`."""

        def ratio(number: int, choice: FoldedChoice) -> float:
            return repetition(self.text(number, choice))

        choices = (await whole_choices(generation))[:: generation.sampling.n]  # the best beams
        _check_ended(choices)
        clips = [WrittenClip(choice, self._request.temperature or 0.0) for choice in choices]
        ratios = list(map(ratio, numbers, choices))
        for temperature in () if self._request.temperature else _TEMPERATURES:
            repeated = [at for at, found in enumerate(ratios) if found > _MAX_COMPRESSION]
            if not repeated:
                break
            try:
                again = await whole_choices(
                    await self._started.submit([numbers[at] for at in repeated], temperature, said)
                )
            except ApiError:
                break
            _check_ended(again)
            for at, choice in zip(repeated, again, strict=True):
                if (found := ratio(numbers[at], choice)) < ratios[at]:
                    clips[at], ratios[at] = WrittenClip(choice, temperature), found
        return clips


async def written_clips(
    started: StartedSpeech, request: SpeechRequest, renderer: Renderer, family: Transcription
) -> list[WrittenClip]:
    """What was written of each clip. Greedy text that repeats itself is replaced by the one that
    repeats itself least, of those at all temperatures up to the first that does not. What is
    written stays if another generation is refused or fails, for want of time for example.

    Raises:
        ApiError: the first generation of a clip failed, or the operator ended one.
    """
    writer = _Writer(started, request, renderer, family)
    if not request.condition_on_previous_text:
        return await writer.written(range(len(started.clips)), started.generation, "")
    clips: list[WrittenClip] = []
    said, generation = "", started.generation
    for at in range(len(started.clips)):
        if at > 0:
            generation = await started.submit([at], None, said)
        clips += await writer.written([at], generation, said)
        said += writer.text(at, clips[at].choice)
        if clips[at].temperature > _MOST_TRUSTED and not request.temperature:
            said = ""
    return clips


def _check_ended(choices: Sequence[FoldedChoice]) -> None:
    """A part of a transcript would look like the whole, and the other clips would be written."""
    if any(choice.finish_reason == "abort" for choice in choices):
        raise aborted()
