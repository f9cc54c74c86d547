"""Images of an `LLM`: files, opened images and URLs as the model's encoder takes them.

    images = OfflineImages(MediaConfig(), Path("llava-1.5-7b-hf"), max_tokens=2048)
    pixels = images.prepared("cat.png", "image 0")

Limits and results are those of images over HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from pagemill.config import MediaConfig
from pagemill.engine.media import ImageInput
from pagemill.engine.outputs import EngineError
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.media.cache import PreparedCache, content_key

if TYPE_CHECKING:  # Pillow is an extra
    from PIL.Image import Image

    from pagemill.render.media.processors import ImageProcessor, Prepared

ImageSource: TypeAlias = "ImageInput | str | os.PathLike[str] | Image"
"""What an encoder takes, as it is; the path of an image file; a URL (https:, http: or data:); or an
image that Pillow has opened."""

Message = Mapping[str, Any]

_SCHEMES = ("http", "https", "data")


class OfflineImages:
    """Reads images within the limits of `config`. Not thread-safe."""

    def __init__(self, config: MediaConfig, folder: Path, max_tokens: int) -> None:
        """Reads nothing yet.

        Args:
            config: limits, and the hosts of URLs that are fetched.
            folder: the checkpoint.
            max_tokens: of an image; 0 for a model that takes none.
        """
        self._config = config
        self._folder = folder
        self._max_tokens = max_tokens
        self._cache = PreparedCache(config.cache_bytes)
        self._processor: ImageProcessor | None = None

    def reset_cache(self) -> None:
        """Forgets images that were prepared."""
        self._cache.reset()

    def all_prepared(self, images: Sequence[ImageSource]) -> list[ImageInput]:
        """The images of one prompt.

        Raises:
            EngineError: INVALID_ARGUMENT: there are too many, or one cannot be read.
        """
        self._check_number(len(images))
        return [self.prepared(image, f"image {at}") for at, image in enumerate(images)]

    def of_messages(self, messages: Sequence[Message]) -> tuple[list[Message], list[ImageInput]]:
        """The messages as a chat template reads them, and their images. A part of type `image_url`
        has a URL, of type `image` anything that an image can be, of type `image_pil` one of Pillow.

        Raises:
            EngineError: INVALID_ARGUMENT: there are too many images, or one cannot be read.
        """
        found: list[tuple[ImageSource, str]] = []

        def bare(part: Any, where: str) -> Any:
            image = _image_of(part, where)
            if image is None:
                return part
            found.append((image, where))
            return {"type": "image"}

        changed: list[Message] = []
        for at, message in enumerate(messages):
            content: Any = message.get("content")
            if isinstance(content, list):
                parts = cast("list[Any]", content)
                where = f"messages[{at}].content"
                content = [bare(part, f"{where}[{n}]") for n, part in enumerate(parts)]
                message = {**message, "content": content}
            changed.append(message)
        self._check_number(len(found))
        return changed, [self.prepared(image, where) for image, where in found]

    def prepared(self, image: ImageSource, where: str) -> ImageInput:
        """The image as the model's encoder takes it; `where` begins the messages of errors.

        Raises:
            EngineError: INVALID_ARGUMENT: it cannot be read, or how the model's images are prepared
                is not known. UNIMPLEMENTED: Pillow is not installed.
        """
        if isinstance(image, np.ndarray | tuple):
            return image
        if self._max_tokens == 0:
            raise _refusal(where, "this model takes no images")
        try:
            from pagemill.render.media.decode import ImageLimits, data_of, decoded, shown
        except ImportError as error:
            raise EngineError(
                "UNIMPLEMENTED", "images are read by Pillow: pip install 'pagemill[images]'"
            ) from error
        background = self._config.background
        limits = ImageLimits(self._config.max_image_bytes, self._config.max_image_pixels)
        try:
            if not isinstance(image, str | os.PathLike):
                return self._process(lambda: shown(image, limits, background))
            source = os.fspath(image)
            scheme = source.partition(":")[0].lower() if isinstance(image, str) else ""
            if scheme not in _SCHEMES:
                data = _file(source, limits.max_bytes)
            elif scheme == "data":
                data = data_of(source, limits)
            else:
                data = self._fetched(source)
            key = content_key("", data)
            kept = self._cache.get(key)
            if kept is None:
                kept = self._process(lambda: decoded(data, limits, background))
                self._cache.put(key, kept)
            return kept
        except RenderError as error:
            raise _refusal(where, error.message) from error

    def _process(self, opened: Callable[[], Image]) -> Prepared:
        if self._processor is None:
            from pagemill.render.media.processors import open_processor

            self._processor = open_processor(
                self._folder, self._max_tokens, self._config.mm_processor_kwargs
            )
        return self._processor(opened())

    def _fetched(self, url: str) -> bytes:
        from pagemill.render.media.fetch import MediaFetcher

        config = self._config
        fetcher = MediaFetcher(
            domains=config.domains,
            max_bytes=config.max_image_bytes,
            timeout_s=config.media_fetch_timeout,
        )
        return fetcher.fetch(url)

    def _check_number(self, number: int) -> None:
        most = self._config.max_images
        if number > most:
            raise EngineError(
                "INVALID_ARGUMENT",
                f"a prompt has {number} images; at most {most} are taken (limit_mm_per_prompt)",
                "images",
            )


def _image_of(part: Any, where: str) -> ImageSource | None:
    """The image of a part; None if it has none."""
    fields = as_object(part) or {}
    kind = fields.get("type")
    if kind in ("image", "image_pil"):
        return fields.get(kind)
    if kind != "image_url":
        return None
    value = fields.get("image_url")
    url = (as_object(value) or {"url": value}).get("url")
    if not isinstance(url, str) or url.partition(":")[0].lower() not in _SCHEMES:
        raise _refusal(
            where, "image_url must be an https:, http: or data: URL; files are parts of type image"
        )
    return url


def _file(path: str, max_bytes: int) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise RenderError(f"the file {path} cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise RenderError(f"the file {path} is larger than {max_bytes} bytes (max_image_bytes)")
    return data


def _refusal(where: str, why: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", f"{where}: {why}", "images")
