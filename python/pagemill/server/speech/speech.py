"""Files of audio as parts of prompts: decoded, cut into clips, and encoded as a model's tokens.

async with speech.uploads.upload(speech.max_bytes) as file:
    ...
    sounds = await speech.sounds(file)
prompts = [sound.within(speech.family.around(task)) for sound in sounds]
"""

from __future__ import annotations

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

_READ_AT_ONCE = 4  # files whose samples are in memory


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


class Speech:
    """Of one model that transcribes. Belongs to one event loop."""

    def __init__(self, family: Transcription, media: Media) -> None:
        """`media` reads files and places what they hold."""
        self.family = family
        self.uploads = AudioUploads()
        self._media = media
        self._room = Capacity(_READ_AT_ONCE)

    @property
    def max_bytes(self) -> int:
        """Of a file.

        Raises:
            ApiError: 400: this server cannot read audio.
        """
        return self._media.max_bytes("audio", "file")

    async def sounds(self, file: UploadedAudio) -> list[Sound]:
        """The clips of `file`, which is discarded.

        Raises:
            ApiError: 400: it cannot be read, or is too long.
        """
        await self._room.take(1)
        try:
            audio = await self._media.read_file("audio", file.content(), "file")
            sounds: list[Sound] = []
            size = 0
            for clip in cut(audio.values, RATE, self.family.max_clip_s):
                sounds.append(await self._sound(clip))
                size += sum(item.features.rows.nbytes for item in sounds[-1].tokens.media)
                if size > MAX_PREPARED_BYTES:
                    raise bad_request(
                        f"`file` has {len(audio.values) / RATE:.0f} seconds of audio, of which"
                        f" {clip.start_s:.0f} can be read at once: send it in parts.",
                        "file",
                    )
            return sounds
        finally:
            self._room.give(1)
            file.discard()

    async def _sound(self, clip: Clip) -> Sound:
        prompt = RenderedPrompt.of([self.family.placeholder])
        try:
            placed = await self._media.place(prompt, [PreparedMedia("audio", clip.samples)])
        except ApiError as error:
            raise bad_request(error.message, "file") from error
        return Sound(placed, ClipTimes(clip.start_s, clip.duration_s))


def open_speech(source: RenderSource, renderer: AnyRenderer, media: Media) -> Speech | None:
    """What reads audio for the model of `source`; None if it transcribes nothing.

    Raises:
        RenderError: its files lack something that is needed, or no tokenizer is loaded and it does
            nothing else.
    """
    row = find(source.config)
    if row is None:
        return None
    if not isinstance(renderer, Renderer):
        if row.chats:
            return None
        raise RenderError("--skip-tokenizer-init: a model that transcribes needs its tokenizer")
    checkpoint = SpeechCheckpoint(renderer.tokenizer, source.config, Path(source.path))
    return Speech(open_transcription(row, checkpoint), media)


def generating_tasks(source: RenderSource, speech: Speech | None) -> frozenset[Task]:
    """What the model of `source` is for if it does not pool."""
    row = find(source.config)
    if speech is None or row is None:
        return frozenset({Task.GENERATE})
    return frozenset({Task.GENERATE, Task.TRANSCRIBE} if row.chats else {Task.TRANSCRIBE})
