"""Media of an `LLM`: files, URLs, opened images and arrays as the model's encoder takes them.

    media = OfflineMedia(MediaConfig(), Path("llava-1.5-7b-hf"), max_tokens=2048)
    pixels = media.prepared("image", "cat.png", "image 0")

Limits and results are those of media over HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from pagemill.config import MediaConfig
from pagemill.engine.media import media_param
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_embeds import (
    EMBEDS_PARTS,
    GRID,
    SHAPE,
    embeds_param,
    media_of_embeds,
    unknown_fields,
)
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.media.cache import PreparedCache, content_key
from pagemill.render.media.data_url import audio_url, data_of
from pagemill.render.media.encoder_servers import MediaUnavailableError
from pagemill.render.media.media_files import (
    MediaFiles,
    MissingPackageError,
    open_files,
    read_with_sound,
)

if TYPE_CHECKING:  # Pillow is an extra
    from PIL.Image import Image

ImageInput = np.ndarray | tuple[np.ndarray, Sequence[int]]
"""Pixels [3, height, width], or tiles [tiles, 3, height, width]; or patches [patches, channels], or
tiles, and their grid (`PreparedMedia.grid`); as the model's processor gives them."""
ImageSource: TypeAlias = "ImageInput | str | os.PathLike[str] | Image"
"""What an encoder takes, as it is; the path of an image file; a URL (https:, http: or data:); or an
image that Pillow has opened."""
AudioSource: TypeAlias = "np.ndarray | tuple[np.ndarray, int] | str | os.PathLike[str]"
"""Samples of one channel at the model's rate; samples [samples] or [samples, channels] and how many
there are in a second; the path of an audio file; or a URL."""
VideoInput = (
    tuple[np.ndarray, Sequence[int], FrameTimes]
    | tuple[np.ndarray, Sequence[int], FrameTimes, np.ndarray]
)
"""Patches [patches, channels], or frames [frames, 3, height, width], their grid, and the times of
frames (`PreparedMedia`); and samples of its sound, if the model hears it."""
FrameSource: TypeAlias = "np.ndarray | list[Image]"
"""Frames of a video: uint8 [frames, height, width, 3], or images of Pillow."""
VideoSource: TypeAlias = (
    "VideoInput | FrameSource | tuple[FrameSource, float] | str | os.PathLike[str]"
)
"""What an encoder takes, as it is; frames, 2 a second, or frames and how many there are in a
second; the path of a video file; or a URL."""
MediaSource: TypeAlias = "ImageSource | AudioSource | VideoSource | Mapping[str, Any]"
"""Also `{"image_embeds": rows}` or `{"audio_embeds": rows}`: the embeddings that the encoder would
make, [rows, width], with `image_grid_thw` and `shape` if the model needs them (media_embeds.py)."""

Message = Mapping[str, Any]

_SCHEMES = ("http", "https", "data")
# Types of parts: what they have, and whether it is a URL.
_PARTS: Mapping[str, tuple[MediaKind, bool]] = {
    "audio": ("audio", False),
    "audio_embeds": ("audio", False),
    "audio_url": ("audio", True),
    "input_audio": ("audio", True),
    "image": ("image", False),
    "image_embeds": ("image", False),
    "image_pil": ("image", False),
    "image_url": ("image", True),
    "video": ("video", False),
    "video_url": ("video", True),
}


class OfflineMedia:
    """Reads media within the limits of `config`. Not thread-safe."""

    def __init__(self, config: MediaConfig, folder: Path, max_tokens: int) -> None:
        """Reads nothing yet.

        Args:
            config: limits, and the hosts of URLs that are fetched.
            folder: the checkpoint.
            max_tokens: of an item; 0 for a model that takes no media.
        """
        self._config = config
        self._folder = folder
        self._max_tokens = max_tokens
        self._cache = PreparedCache(config.cache_bytes)
        self._files: dict[MediaKind, MediaFiles] = {}

    def reset_cache(self) -> None:
        """Forgets media that were prepared."""
        self._cache.reset()

    def all_prepared(
        self, kind: MediaKind, media: Sequence[MediaSource], *, sound: bool = False
    ) -> list[PreparedMedia]:
        """The media of one kind of one prompt; videos perhaps with the sound of their files.

        Raises:
            EngineError: INVALID_ARGUMENT: there are too many, or one cannot be read.
        """
        self._check_number(kind, len(media))
        return [
            self.prepared(kind, each, f"{kind} {at}", sound=sound) for at, each in enumerate(media)
        ]

    def of_messages(
        self, messages: Sequence[Message], *, sound: bool = False
    ) -> tuple[list[Message], list[PreparedMedia]]:
        """The messages as a chat template reads them, and their media. A part of type `image_url`
        has a URL, of type `image` anything that an image can be, of type `image_pil` one of Pillow;
        `audio_url` and `audio` are alike, and so are `video_url` and `video`; `input_audio` has a
        file in base64. Videos perhaps have the sound of their files.

        Raises:
            EngineError: INVALID_ARGUMENT: there are too many of a kind, or one cannot be read.
        """
        found: list[tuple[MediaKind, MediaSource, str]] = []

        def bare(part: Any, where: str) -> Any:
            media = _media_of(part, where)
            if media is None:
                return part
            kind, source = media
            found.append((kind, source, where))
            return {"type": kind}

        changed: list[Message] = []
        for at, message in enumerate(messages):
            content: Any = message.get("content")
            if isinstance(content, list):
                parts = cast("list[Any]", content)
                where = f"messages[{at}].content"
                content = [bare(part, f"{where}[{n}]") for n, part in enumerate(parts)]
                message = {**message, "content": content}
            changed.append(message)
        kinds: list[MediaKind] = [kind for kind, _, _ in found]
        for kind in set(kinds):
            self._check_number(kind, kinds.count(kind))
        return changed, [self.prepared(*each, sound=sound) for each in found]

    def prepared(
        self, kind: MediaKind, media: MediaSource, where: str, *, sound: bool = False
    ) -> PreparedMedia:
        """The item as the model takes it; `where` begins the messages of errors. With `sound`, the
        file of a video has its own.

        Raises:
            EngineError: INVALID_ARGUMENT: it cannot be read, or how the model's media are prepared
                is not known. UNIMPLEMENTED: the package that reads it is not installed.
                UNAVAILABLE: no other server has encoded it.
        """
        if isinstance(media, Mapping):
            return _given(kind, media, where)
        if kind == "video":
            if isinstance(media, tuple) and len(media) >= 3:
                values, grid, times, *heard = media
                sizes = _sizes(kind, grid, where)
                samples = np.asarray(heard[0], np.float32) if heard else None
                return PreparedMedia(kind, np.asarray(values, np.float32), sizes, times, samples)
        elif isinstance(media, np.ndarray):
            if kind == "audio" and not np.issubdtype(media.dtype, np.floating):
                raise _refusal(kind, where, f"samples are {media.dtype}; they must be from -1 to 1")
            return PreparedMedia(kind, np.asarray(media, np.float32))
        elif kind == "image" and isinstance(media, tuple):
            values, grid = cast("tuple[np.ndarray, Sequence[int]]", media)
            return PreparedMedia(kind, np.asarray(values, np.float32), _sizes(kind, grid, where))
        if self._max_tokens == 0:
            raise _refusal(kind, where, f"this model takes no {media_param(kind)}")
        try:
            return self._read(kind, media, sound=sound and kind == "video")
        except MissingPackageError as error:
            raise EngineError("UNIMPLEMENTED", error.message) from error
        except MediaUnavailableError as error:
            raise EngineError("UNAVAILABLE", f"{where}: {error.message}") from error
        except RenderError as error:
            raise _refusal(kind, where, error.message) from error

    def _opened(self, kind: MediaKind) -> MediaFiles:
        if kind not in self._files:
            self._files[kind] = open_files(kind, self._config, self._folder, self._max_tokens)
        return self._files[kind]

    def _read(self, kind: MediaKind, media: MediaSource, *, sound: bool) -> PreparedMedia:
        files = self._opened(kind)
        if not isinstance(media, str | os.PathLike):
            return files.read_opened(media)
        data = self._data(media, files.max_bytes)
        key = content_key(kind, "", data)._replace(sound=sound)
        kept = self._cache.get(key)
        if kept is None:
            if sound:
                kept = read_with_sound(files, self._opened("audio"), data)
            else:
                kept = files.read(data)
            self._cache.put(key, kept)
        return kept

    def _data(self, media: str | os.PathLike[str], max_bytes: int) -> bytes:
        """The file at a path or a URL."""
        source = os.fspath(media)
        scheme = source.partition(":")[0].lower() if isinstance(media, str) else ""
        if scheme not in _SCHEMES:
            return _file(source, max_bytes)
        if scheme == "data":
            return data_of(source, max_bytes)
        from pagemill.render.media.fetch import MediaFetcher

        fetcher = MediaFetcher(
            domains=self._config.domains,
            max_bytes=max_bytes,
            timeout_s=self._config.media_fetch_timeout,
        )
        return fetcher.fetch(source)

    def _check_number(self, kind: MediaKind, number: int) -> None:
        most = self._config.max_items(kind)
        if number > most:
            named = media_param(kind)
            raise EngineError(
                "INVALID_ARGUMENT",
                f"a prompt has {number} {named}; at most {most} are taken (limit_mm_per_prompt)",
                named,
            )


def _media_of(part: Any, where: str) -> tuple[MediaKind, MediaSource] | None:
    """The kind and the source of a part; None if it is no media."""
    fields = as_object(part) or {}
    name = fields.get("type")
    if not isinstance(name, str) or name not in _PARTS:
        return None
    kind, is_url = _PARTS[name]
    value: Any = fields.get(name)
    if name in EMBEDS_PARTS:
        return kind, as_object(value) or {name: value}
    if name == "input_audio":
        value = audio_url(as_object(value) or {})
        if not value:
            raise _refusal(kind, where, "input_audio must have a file in base64 as `data`")
    if not is_url:
        return kind, value
    url = (as_object(value) or {"url": value}).get("url")
    if not isinstance(url, str) or url.partition(":")[0].lower() not in _SCHEMES:
        why = f"{name} must be an https:, http: or data: URL; files are parts of type {kind}"
        raise _refusal(kind, where, why)
    return kind, url


def _given(kind: MediaKind, media: Mapping[str, Any], where: str) -> PreparedMedia:
    """The image or audio whose embeddings are in a mapping."""
    name = embeds_param(kind)
    if name not in EMBEDS_PARTS or media.get(name) is None or unknown_fields(kind, media):
        known = f"{name}, {SHAPE}" + (f" and {GRID}" if kind == "image" else "")
        why = f"a mapping has the embeddings of an image or audio, as {known}"
        raise _refusal(kind, where, why)
    try:
        rows = np.asarray(media[name], np.float32, order="C")
        sizes = (None if media.get(key) is None else _listed(media[key]) for key in (SHAPE, GRID))
        return media_of_embeds(kind, rows, *sizes)
    except (TypeError, ValueError, RuntimeError) as error:  # the last is of torch
        raise _refusal(kind, where, str(error)) from error


def _listed(values: Any) -> list[Any]:
    """The numbers of a list, an array or a tensor, perhaps in a list."""
    return np.asarray(values).reshape(-1).tolist()


def _sizes(kind: MediaKind, grid: Any, where: str) -> tuple[int, int, int]:
    try:
        time, height, width = map(int, grid)
    except (TypeError, ValueError) as error:
        raise _refusal(kind, where, f"its grid must be 3 numbers: {error}") from error
    return time, height, width


def _file(path: str, max_bytes: int) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise RenderError(f"the file {path} cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise RenderError(f"the file {path} is larger than {max_bytes} bytes")
    return data


def _refusal(kind: MediaKind, where: str, why: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", f"{where}: {why}", media_param(kind))
