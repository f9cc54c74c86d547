"""Files of media as an encoder takes them: one reader for each kind that a model takes.

readers = {kind: open_files(kind, MediaConfig(), folder, max_tokens) for kind in kinds}
media = readers["image"].read(data)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pagemill.config import MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.render.stop import Stop


class MediaFiles(Protocol):
    """Reads files of one kind of media, within limits. Thread-safe. `max_bytes`: of a file."""

    @property
    def max_bytes(self) -> int: ...

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """What the file `data` holds, prepared for the model. `stop` ends this, after which what
        is raised says nothing about the file.

        Raises:
          RenderError: it cannot be read, or exceeds a limit. What its header says is compared with
            limits before anything is decoded.
        """
        ...

    def read_opened(self, media: Any, /) -> PreparedMedia:
        """What a caller has opened, such as an image of Pillow, as `read` returns it.

        Raises:
          RenderError: it exceeds a limit.
        """
        ...


class MissingPackageError(RenderError):
    """A package that reads files of this kind is not installed."""


def open_files(kind: MediaKind, config: MediaConfig, folder: Path, max_tokens: int) -> MediaFiles:
    """The reader of files of `kind` for the model in `folder`.

    Args:
      kind: of the media.
      config: limits, and settings of the model's processor.
      folder: the checkpoint.
      max_tokens: of one item.

    Raises:
      MissingPackageError: the extra of this kind is not installed.
      RenderError: how the model's media are prepared is not known, or `mm_processor_kwargs` are
        not; or other servers encode media, and not those of `kind`.
      ConfigError: the key for other servers cannot be read.
    """
    if config.encoder_servers:
        from pagemill.render.media.encoder_servers import EncoderFiles

        return EncoderFiles.open(kind, config)
    if kind == "audio":
        try:
            from pagemill.render.media.audio_files import AudioFiles
        except (ImportError, OSError):  # soundfile's library is not there
            raise _missing("audio is read by soundfile and soxr", "audio") from None
        return AudioFiles.open(config, folder)
    if kind == "video":
        try:
            from pagemill.render.media.video_files import VideoFiles
        except ImportError:
            raise _missing("frames of videos are read by Pillow", "video") from None
        return VideoFiles.open(config, folder, max_tokens)
    try:
        from pagemill.render.media.image_files import ImageFiles
    except ImportError:
        raise _missing("images are read by Pillow", "images") from None
    return ImageFiles.open(config, folder, max_tokens)


def wants_sound(settings: Mapping[str, Any]) -> bool:
    """Whether the `mm_processor_kwargs` of a request say that the sound of videos is heard.

    Raises:
      RenderError: they have other settings.
    """
    wanted = settings.get("use_audio_in_video", False)
    if settings.keys() - {"use_audio_in_video"} or not isinstance(wanted, bool):
        raise RenderError(
            "`mm_processor_kwargs` of a request has `use_audio_in_video`, true or false, and"
            " nothing else; other settings are those of the server, or of an LLM"
        )
    return wanted


def read_with_sound(
    videos: MediaFiles, audio: MediaFiles, data: bytes, stop: Stop | None = None
) -> PreparedMedia:
    """The video in the file `data`, with its sound if it has some, by the readers of both kinds.
    `stop`: see `MediaFiles.read`.

    Raises:
      RenderError: see `MediaFiles.read`; the sound may also exceed a limit of audio.
    """
    from pagemill.render.media.audio_files import AudioFiles
    from pagemill.render.media.video_files import VideoFiles

    assert isinstance(videos, VideoFiles) and isinstance(audio, AudioFiles)
    return videos.read_with(data, audio.mix, stop)


def _missing(what: str, extra: str) -> MissingPackageError:
    return MissingPackageError(f"{what}: pip install 'pagemill[{extra}]'")
