"""How the routes of transcriptions and translations write what was said."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.transcription.base import Transcription as Family
from pagemill.render.transcription.turns import Turn, turns, without_marks
from pagemill.server.answer import Text
from pagemill.server.errors import ApiError
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.transcription import (
    DiarizedSegment,
    DiarizedTranscription,
    Duration,
    Segment,
    SpeechChoice,
    SpeechChunk,
    SpeechDelta,
    SpeechRequest,
    Transcription,
    TranslationRequest,
    VerboseTranscription,
    Word,
)
from pagemill.server.rendering import Renderer
from pagemill.server.speech.clip_texts import ClipTexts
from pagemill.server.speech.retries import WrittenClip, compression_ratio
from pagemill.server.speech.start import StartedSpeech
from pagemill.server.speech.subtitles import Line, srt, vtt
from pagemill.server.sse import event, last_events, usage_events

_PLAIN = "text/plain; charset=utf-8"


def whole_answer(
    request: SpeechRequest,
    started: StartedSpeech,
    clips: Sequence[WrittenClip],
    renderer: Renderer,
    family: Family,
    words: list[Word] | None,
) -> Transcription | VerboseTranscription | DiarizedTranscription | Text:
    """The answer in the format of `request`; `words` None: it does not want any."""
    if family.speakers:
        return _answer_of_turns(request, started, clips)
    usage = Duration(math.ceil(started.duration_s))
    if not request.is_timed:
        text = "".join(clip.choice.message.text for clip in clips).strip()
        if request.response_format == "text":
            return Text(text.encode(), _PLAIN)
        return Transcription(text, usage)
    segments = list(_segments(started, clips, renderer, family))
    if request.response_format != "verbose_json":
        lines = [Line(segment.start, segment.end, segment.text) for segment in segments]
        return _subtitles(request, lines)
    return VerboseTranscription(
        "translate" if isinstance(request, TranslationRequest) else "transcribe",
        started.language,
        round(started.duration_s, 3),
        "".join(segment.text for segment in segments).strip(),
        usage,
        segments if request.wants_segments else UNSET,
        UNSET if words is None else words,
    )


def _answer_of_turns(
    request: SpeechRequest, started: StartedSpeech, clips: Sequence[WrittenClip]
) -> Transcription | DiarizedTranscription | Text:
    """The answer if what is written of clips are turns of speakers."""
    written = [clip.choice.message.text for clip in clips]
    text = " ".join(map(without_marks, written)).strip()
    usage = Duration(math.ceil(started.duration_s))
    if request.response_format == "json":
        return Transcription(text, usage)
    if request.response_format == "text":
        return Text(text.encode(), _PLAIN)
    said = [
        turn._replace(start_s=clip.start_s + turn.start_s, end_s=clip.start_s + turn.end_s)
        for each, clip in zip(written, started.clips, strict=True)
        for turn in turns(each, clip.duration_s)
    ]
    if request.response_format == "diarized_json":
        segments = [_diarized(number, turn) for number, turn in enumerate(said)]
        duration = round(started.duration_s, 3)
        return DiarizedTranscription("transcribe", duration, text, segments, usage)
    lines = [Line(turn.start_s, turn.end_s, f"{turn.speaker}: {turn.text}") for turn in said]
    return _subtitles(request, lines)


def _diarized(number: int, turn: Turn) -> DiarizedSegment:
    start, end = round(turn.start_s, 3), round(turn.end_s, 3)
    return DiarizedSegment(f"seg_{number}", start, end, turn.text, turn.speaker)


def _subtitles(request: SpeechRequest, lines: Sequence[Line]) -> Text:
    if request.response_format == "srt":
        return Text(srt(lines).encode(), _PLAIN)
    return Text(vtt(lines).encode(), "text/vtt; charset=utf-8")


def _segments(
    started: StartedSpeech,
    clips: Sequence[WrittenClip],
    renderer: Renderer,
    family: Family,
) -> Iterator[Segment]:
    number = 0
    for written, clip, no_speech in zip(clips, started.clips, started.no_speech, strict=True):
        choice = written.choice
        for span in family.spans(choice.token_ids, clip.duration_s):
            tokens = [choice.token_ids[at] for at in span.at]
            text = renderer.decode(tokens)
            logprobs = [choice.logprobs[at].logprob for at in span.at] if choice.logprobs else [0.0]
            yield Segment(
                number,
                round(100 * clip.start_s),
                round(clip.start_s + span.start_s, 3),
                round(clip.start_s + span.end_s, 3),
                text,
                tokens,
                written.temperature,
                sum(logprobs) / len(logprobs),
                compression_ratio(text),
                UNSET if no_speech is None else no_speech,
            )
            number += 1


class SpeechStream:
    """Implements `respond.StreamWording`: text in the order of clips, whichever is faster."""

    def __init__(
        self, pipeline: Pipeline, request: SpeechRequest, name: str, started: StartedSpeech
    ) -> None:
        self._generation = started.generation
        self._final_usage, self._continuous_usage = usage_events(request.stream_options)
        is_translated = isinstance(request, TranslationRequest)
        self._head = SpeechChunk(
            name,
            int(time.time()),
            pipeline.model.name,
            [],
            "translation.chunk" if is_translated else "transcription.chunk",
        )
        self._encode = msgspec.json.Encoder().encode
        self._texts = ClipTexts(len(started.clips), speakers=started.speakers)

    def begin(self) -> bytes:
        """See `respond.StreamWording`."""
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.StreamWording`."""
        clip, beam = divmod(delta.index, self._generation.sampling.n)
        if beam:
            return b""
        text = self._texts.add(clip, delta)
        if not (text or self._texts.ended):
            return b""
        return self._event(text, self._texts.finish_reason if self._texts.ended else None)

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.StreamWording`."""
        if not self._final_usage:
            return last_events(None, failure)
        self._head.choices, self._head.usage = [], self._generation.usage
        return last_events(self._head, failure)

    def _event(self, text: str, reason: str | None) -> bytes:
        self._head.choices = [SpeechChoice(SpeechDelta(text), finish_reason=reason)]
        if self._continuous_usage:
            self._head.usage = self._generation.usage
        return event(self._encode(self._head))
