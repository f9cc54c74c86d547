"""Bodies of `/v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.config.sampling import SamplingFields
from pagemill.engine.sampling import SamplingParams
from pagemill.server.errors import bad_request
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.sampling import LengthPenalty, Positive, StreamOptions
from pagemill.server.protocol.usage import Usage

MAX_PROMPT_CHARS = 4096
Format = Literal["json", "text", "verbose_json", "diarized_json", "srt", "vtt"]
TIMED_FORMATS = ("verbose_json", "diarized_json", "srt", "vtt")
_NO_PENALTIES = {"presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1}
Language = Annotated[str, Meta(max_length=16)]


class UploadedAudio(ABC):
    """The part of a form that is a file, and is in memory."""

    @abstractmethod
    def take(self) -> bytes:
        """All of it, once. It counts as in memory until it is discarded."""

    @abstractmethod
    def discard(self) -> None:
        """Makes room for others. Idempotent."""


class SpeechRequest(SamplingFields, kw_only=True, frozen=True):
    """The fields of both forms. `hotwords` come in front of the `prompt`, and with
    `condition_on_previous_text` what was said so far behind it. With `use_beam_search` the best of
    `n` beams is the transcription."""

    file: UploadedAudio
    model: str | None = None
    prompt: Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)] = ""
    hotwords: Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)] = ""
    condition_on_previous_text: bool = False
    response_format: Format = "json"
    timestamp_granularities: list[Literal["segment", "word"]] = []
    language: Language | None = None
    max_completion_tokens: Positive | None = None
    stream: bool = False
    stream_include_usage: bool = False
    stream_continuous_usage_stats: bool = False
    use_beam_search: bool = False
    length_penalty: LengthPenalty = 1.0
    vllm_xargs: dict[str, Any] | str = {}
    """As text it is JSON: forms have no objects of numbers."""

    @property
    def wants_words(self) -> bool:
        """Whether the answer has each word."""
        return "word" in self.timestamp_granularities

    @property
    def wants_segments(self) -> bool:
        """Whether an answer with times has segments: words take their place unless both are
        wanted."""
        return not self.wants_words or "segment" in self.timestamp_granularities

    @property
    def is_timed(self) -> bool:
        """Whether the answer says when something is said."""
        return self.response_format in TIMED_FORMATS

    @property
    def stream_options(self) -> StreamOptions:
        """What the stream says of usage."""
        wants = self.stream_include_usage or self.stream_continuous_usage_stats
        return StreamOptions(
            include_usage=wants, continuous_usage_stats=self.stream_continuous_usage_stats
        )


class TranscriptionRequest(SpeechRequest, kw_only=True, frozen=True):
    """Text in the language of the audio."""


class TranslationRequest(SpeechRequest, kw_only=True, frozen=True):
    """Text in another language than that of the audio."""

    to_language: Language = "en"


RULES = FieldRules(
    unsupported={
        "logprob_token_ids": Unsupported(nothing, "a transcription lists no log probabilities."),
        "include": Unsupported(nothing, "send `response_format=verbose_json` for averages."),
        "known_speaker_names": Unsupported(nothing, "speakers are `S01`, `S02` and so on."),
        "known_speaker_references": Unsupported(nothing, "speakers are `S01`, `S02` and so on."),
        "watermarking": Unsupported(only("false"), "transcripts have no marks."),
    },
    ignored=frozenset({"chunking_strategy", "user"}),
)


def check_speech(request: SpeechRequest) -> None:
    """Compares fields with each other.

    Raises:
        ApiError: 400 naming one.
    """
    _check_beams(request)
    if request.timestamp_granularities and request.response_format != "verbose_json":
        raise bad_request(
            "`timestamp_granularities[]` needs `response_format=verbose_json`.",
            "timestamp_granularities",
        )
    if request.stream and request.is_timed:
        raise bad_request(
            f"`response_format={request.response_format}` cannot be streamed: send `json` or"
            " `text`, or leave out `stream`.",
            "response_format",
        )
    if request.stream and request.condition_on_previous_text:
        raise bad_request(
            "`condition_on_previous_text` cannot be streamed: each clip waits for the one before.",
            "condition_on_previous_text",
        )


def _check_beams(request: SpeechRequest) -> None:
    if not request.use_beam_search:
        if request.n != 1:
            raise bad_request(
                "`n`: audio has one transcription; with `use_beam_search` it is that of the best of"
                " `n` beams.",
                "n",
            )
        return
    for name, neutral in _NO_PENALTIES.items():
        value: float | None = getattr(request, name)
        if value not in (None, neutral):
            raise bad_request(f"`use_beam_search` and `{name}` exclude each other.", name)


def _extra_args(sent: dict[str, Any] | str) -> dict[str, Any]:
    """The field `vllm_xargs` as an object.

    Raises:
        ApiError: 400: it is not one.
    """
    if not isinstance(sent, str):
        return sent
    try:
        return msgspec.json.decode(sent, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise bad_request(
            '`vllm_xargs` must be a JSON object, such as {"digits": 3}.', "vllm_xargs"
        ) from None


def speech_sampling(request: SpeechRequest) -> SamplingParams:
    """The request's fields as the engine's parameters; greedy unless it has a temperature.

    Raises:
        ApiError: 400: `vllm_xargs` is not an object.
    """
    shared: dict[str, Any] = {
        name: getattr(request, name) for name in SamplingFields.__struct_fields__
    }
    if request.temperature is None:
        shared["temperature"] = 0.0
    if request.seed == -1:
        shared["seed"] = None
    return SamplingParams(
        **shared,
        logprobs=0 if request.response_format == "verbose_json" else None,
        logprobs_mode="raw_logprobs",
        watermarking=False,
        extra_args=_extra_args(request.vllm_xargs),
    )


def probe_sampling(token: int | None) -> SamplingParams:
    """Of one token that says what is spoken, with the probability of `token` in its place."""
    return SamplingParams(
        temperature=0.0,
        logprob_token_ids=[] if token is None else [token],
        logprobs_mode="raw_logprobs",
    )


class Duration(msgspec.Struct, tag_field="type", tag="duration"):
    """`usage` of audio: seconds, rounded up."""

    seconds: int


class Transcription(msgspec.Struct):
    """An answer in the format `json`."""

    text: str
    usage: Duration


class Segment(msgspec.Struct):
    """A part of the audio in which something is said, from `start` to `end` in seconds. `seek` is
    where its clip begins, in hundredths of a second. `avg_logprob` and `no_speech_prob` are of its
    clip."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float | UnsetType = UNSET


class Word(msgspec.Struct):
    """A word with the punctuation beside it, said from `start` to `end` in seconds."""

    word: str
    start: float
    end: float


class VerboseTranscription(msgspec.Struct):
    """An answer in the format `verbose_json`; `duration` in seconds. It has what the request's
    `timestamp_granularities` name."""

    task: Literal["transcribe", "translate"]
    language: str | None
    duration: float
    text: str
    usage: Duration
    segments: list[Segment] | UnsetType = UNSET
    words: list[Word] | UnsetType = UNSET


class DiarizedSegment(msgspec.Struct, tag_field="type", tag="transcript.text.segment"):
    """What `speaker` says from `start` to `end` in seconds."""

    id: str
    start: float
    end: float
    text: str
    speaker: str


class DiarizedTranscription(msgspec.Struct):
    """An answer in the format `diarized_json`; `duration` in seconds."""

    task: Literal["transcribe"]
    duration: float
    text: str
    segments: list[DiarizedSegment]
    usage: Duration


ANSWER = Transcription | VerboseTranscription | DiarizedTranscription


class SpeechDelta(msgspec.Struct):
    """Text that the audio goes on with."""

    content: str


class SpeechChoice(msgspec.Struct):
    """The only one of an event."""

    delta: SpeechDelta
    index: int = 0
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class SpeechChunk(msgspec.Struct):
    """One event of a stream."""

    id: str
    created: int
    model: str
    choices: list[SpeechChoice]
    object: Literal["transcription.chunk", "translation.chunk"] = "transcription.chunk"
    usage: Usage | UnsetType = UNSET
