"""Files of audio as parts of prompts: decoded, cut into clips, and encoded as a model's tokens.

async with speech.uploads.upload(expected_bytes, tenant) as file:
    ...
    sounds = await speech.sounds(file, check_number, tenant=tenant)
around = speech.family.around(task)
prompts = [sound.within(around) for sound in sounds.clips]
...
sounds.release()
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.task import Task
from pagemill.render.errors import RenderError
from pagemill.render.model_files import RenderSource
from pagemill.render.renderer import Renderer
from pagemill.render.token_id_renderer import AnyRenderer
from pagemill.render.transcription.base import RATE, Around, SpeechCheckpoint, Transcription
from pagemill.render.transcription.clips import Clip, cut
from pagemill.render.transcription.table import find, open_transcription
from pagemill.server.capacity import Capacity
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.media import MAX_PREPARED_BYTES, Media
from pagemill.server.protocol.transcription import UploadedAudio
from pagemill.server.speech.upload import AudioUploads
from pagemill.server.threads import Threads

_LOGGER = logging.getLogger("pagemill.server")

READ_AT_ONCE = 4
"""Files whose samples are in memory."""
TIMED_AT_ONCE = 4
"""Clips whose words are timed: each has megabytes of rows, and takes seconds of a thread."""
MAX_FEATURE_BYTES = 2**29
"""Of all requests, from when they are read to the end of what is generated."""


class ClipTimes(NamedTuple):
    """When a clip begins in its file, and how long it is."""

    start_s: float
    duration_s: float


class Sound(NamedTuple):
    """A clip as a part of prompts: its tokens and features, which may be megabytes."""

    tokens: RenderedPrompt
    times: ClipTimes

    def within(self, around: Around) -> RenderedPrompt:
        """A prompt of the clip."""
        before, after = (np.array(ids, np.int32) for ids in around)
        return RenderedPrompt(
            np.concatenate([before, self.tokens.token_ids, after]),
            tuple(
                msgspec.structs.replace(item, first_token=len(before) + item.first_token)
                for item in self.tokens.media
            ),
        )


class Sounds:
    """All clips of a file, and the room that their features take."""

    def __init__(self, clips: Sequence[Sound], released: Callable[[], None]) -> None:
        """`released` is called once."""
        self.clips = clips
        self._released: Callable[[], None] | None = released

    def release(self) -> None:
        """The features are not used any more. Idempotent."""
        if self._released is not None:
            self._released()
            self._released = None


class Speech:
    """Of one model that transcribes. Belongs to one event loop."""

    def __init__(self, family: Transcription, media: Media) -> None:
        """`media` reads files and places what they hold."""
        self.family = family
        self.uploads = AudioUploads()
        self.timing = Capacity(TIMED_AT_ONCE)
        """Taken for each clip whose words are timed."""
        self.timing_threads = Threads(TIMED_AT_ONCE, "word-times")
        self._media = media
        self._room = Capacity(READ_AT_ONCE, spare=1)
        self._features = Capacity(MAX_FEATURE_BYTES)

    @property
    def max_bytes(self) -> int:
        """Of a file.

        Raises:
            ApiError: 400: this server cannot read audio.
        """
        return self._media.max_bytes("audio", "file")

    async def fetched(self, url: str, param: str, tenant: str) -> bytes:
        """The file at `url`, which the field `param` of a request of `tenant` has.

        Raises:
            ApiError: see `Media.fetch_file`.
        """
        return await self._media.fetch_file("audio", url, param, tenant)

    async def sounds(
        self,
        file: UploadedAudio,
        check_number: Callable[[int], None],
        num_beams: int = 1,
        *,
        tenant: str,
    ) -> Sounds:
        """The clips of `file`, which is discarded, read in the share of `tenant`. The caller
        releases the result.

        `check_number` is called with how many there are before any is encoded. Each of `num_beams`
        sends the engine the features of its clip.

        Raises:
            ApiError: 400: it cannot be read, or is too long; what `check_number` raises.
        """
        await self._room.take(1, tenant)
        try:
            audio = await self._media.read_file("audio", file.take(), "file", tenant)
            file.discard()
            clips = cut(audio.values, RATE, self.family.max_clip_s)
            check_number(len(clips))
            sounds: list[Sound] = []
            size = 0
            for clip in clips:
                sounds.append(await self._sound(clip, tenant))
                size += sum(item.features.rows.nbytes for item in sounds[-1].tokens.media)
                sent = size * num_beams * len(clips) / len(sounds)
                _check_size(sent, len(audio.values) / RATE)
            # The next file is read when there is room for the features of this one.
            await self._features.take(size, tenant)
            return Sounds(sounds, lambda: self._features.give(size, tenant))
        finally:
            self._room.give(1, tenant)

    async def _sound(self, clip: Clip, tenant: str) -> Sound:
        prompt = RenderedPrompt.of([self.family.placeholder])
        try:
            media = [PreparedMedia("audio", clip.samples)]
            placed = await self._media.place(prompt, media, tenant)
        except ApiError as error:
            raise bad_request(error.message, "file") from error
        return Sound(placed, ClipTimes(clip.start_s, clip.duration_s))


def _check_size(feature_bytes: float, duration_s: float) -> None:
    """`feature_bytes` are those of the file, by its clips so far, for all beams."""
    if feature_bytes > MAX_PREPARED_BYTES:
        longest_s = duration_s * MAX_PREPARED_BYTES / feature_bytes
        raise bad_request(
            f"`file` has {duration_s:.0f} seconds of audio, of which {longest_s:.0f} can be read"
            " at once: send it in parts, or with fewer beams if it has some.",
            "file",
        )


def open_speech(source: RenderSource, renderer: AnyRenderer, media: Media) -> Speech | None:
    """What reads audio for the model of `source`; None if it transcribes nothing, or if its files
    lack something that is needed for it and it chats.

    Raises:
        RenderError: they lack something, or no tokenizer is loaded, and it does nothing else.
    """
    row = find(source.config)
    if row is None:
        return None
    if not isinstance(renderer, Renderer):
        if row.chats:
            return None
        raise RenderError("--skip-tokenizer-init: a model that transcribes needs its tokenizer")
    checkpoint = SpeechCheckpoint(
        renderer.tokenizer, source.config, Path(source.path), renderer.encode_chat
    )
    try:
        return Speech(open_transcription(row, checkpoint), media)
    except RenderError as error:
        if not row.chats:
            raise
        _LOGGER.warning("no transcriptions: %s", error.message)
        return None


def generating_tasks(source: RenderSource, speech: Speech | None) -> frozenset[Task]:
    """What the model of `source` is for if it does not pool."""
    row = find(source.config)
    if speech is None or row is None:
        return frozenset({Task.GENERATE})
    return frozenset({Task.GENERATE, Task.TRANSCRIBE} if row.chats else {Task.TRANSCRIBE})
