"""A family that transcribes without a vocabulary, and files of audio without a format.

A file is samples of one byte. A prompt is `(` and three tokens of audio, `[language][task]=`, or
`?` to find the language. In outputs `|` ends what is said in half a second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt
from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import Around, LanguageProbe, Span, SpeechTask
from pagemill.server.errors import bad_request
from pagemill.server.media_work import MediaBudget
from pagemill.server.protocol.media import SentMedia
from pagemill.server.speech.speech import Speech

AUDIO = 0xF0
AUDIO_TOKENS = 3
MAX_FILE_BYTES = 200_000
LANGUAGES = {ord("d"): "de", ord("e"): "en"}


class FakeFamily:
    """Implements `Transcription`: in German or English."""

    placeholder = AUDIO
    probe: LanguageProbe | None = LanguageProbe(Around([*b"("], [*b"?"]), LANGUAGES, ord("n"))

    def __init__(self, max_clip_s: int | None = 2, *, speakers: bool = False) -> None:
        self.max_clip_s = max_clip_s
        self.speakers = speakers

    def checked(self, task: SpeechTask) -> SpeechTask:
        """Refuses other languages."""
        if task.language not in (None, "de", "en"):
            raise RenderError("`language` is not known", "language")
        return task

    def around(self, task: SpeechTask) -> Around:
        """The prompt of a task."""
        assert task.language is not None
        kind = "t" if task.to_language is None else "T"
        return Around([*b"("], [*f"{task.prompt}{task.language[0]}{kind}=".encode()])

    def rules(self, task: SpeechTask) -> TranscriptRules | None:
        """Token 1 comes in no output, and `|` is the first of the timestamps."""
        begin = ord("|") if task.timestamps and not self.speakers else None
        return TranscriptRules(256, ord("."), (1,), timestamp_begin=begin)

    def spans(self, token_ids: Sequence[int], clip_s: float) -> list[Span]:
        """Half a second each."""
        found: list[Span] = []
        at: list[int] = []
        for index, token in enumerate(token_ids):
            if token != ord("|"):
                at.append(index)
                continue
            start = len(found) / 2
            found.append(Span(start, min(start + 0.5, clip_s), at))
            at = []
        return found


class FakeMedia:
    """Implements `Media` for files of audio."""

    kinds: Sequence[MediaKind] = ("audio",)
    max_audio_s = 4.0

    def __init__(self) -> None:
        self.read_urls: list[str] = []

    async def read(
        self, sent: Sequence[SentMedia], owner: MediaOwner, budget: MediaBudget | None = None
    ) -> Sequence[PreparedMedia]:
        """Those in messages are noted."""
        self.read_urls += [media.url for media in sent]
        return [PreparedMedia(media.kind, np.zeros(1, np.float32)) for media in sent]

    async def read_file(
        self, kind: MediaKind, data: bytes, param: str, tenant: str
    ) -> PreparedMedia:
        """Samples of one byte; an empty file is refused."""
        if not data:
            raise bad_request(f"`{param}` cannot be read: it is empty.", param)
        return PreparedMedia(kind, np.frombuffer(data, np.int8).astype(np.float32) / 128)

    async def fetch_file(self, kind: MediaKind, url: str, param: str, tenant: str) -> bytes:
        """`fake:` and the file's characters."""
        name, _, data = url.partition(":")
        if name != "fake":
            raise bad_request(f"`{param}` cannot be fetched: its host is not allowed.", param)
        return data.encode()

    def max_bytes(self, kind: MediaKind, param: str) -> int:
        """Of a file."""
        return MAX_FILE_BYTES

    def reset_cache(self) -> None:
        """There is none."""

    async def place(
        self,
        prompt: RenderedPrompt,
        media: Sequence[PreparedMedia],
        tenant: str,
        budget: MediaBudget | None = None,
    ) -> RenderedPrompt:
        """Three tokens for audio; the features are its number of samples. That of messages has
        none."""
        if prompt.token_ids.tolist() != [AUDIO]:
            return prompt
        rows = np.full((AUDIO_TOKENS, 1), len(media[0].values), np.float32)
        item = MediaItem(str(len(media[0].values)), 0, MediaFeatures(rows, AUDIO_TOKENS))
        return RenderedPrompt(np.full(AUDIO_TOKENS, AUDIO, np.int32), (item,))


def fake_speech(max_clip_s: int | None = 2, *, speakers: bool = False) -> Speech:
    """What reads audio, in clips of so many seconds; None: all audio is one clip. With `speakers`
    outputs are turns of speakers."""
    return Speech(FakeFamily(max_clip_s, speakers=speakers), FakeMedia())
