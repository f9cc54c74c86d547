"""Images of requests: fetched or decoded in threads, kept, and placed in prompts.

sent = image_parts(request.messages)
prepared = await images.read(sent, owner)
prompt = await images.place(prompt, prepared)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pagemill.config import ConfigError
from pagemill.config.media import MediaConfig
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.errors import RenderError
from pagemill.render.media.cache import (
    MediaKey,
    PreparedCache,
    content_key,
    prepared_bytes,
    uuid_key,
)
from pagemill.server.capacity import Capacity
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.images import SentImage

if TYPE_CHECKING:  # Pillow is an extra
    from pagemill.render.media.processors import ImageProcessor, Prepared

MAX_WAITING = 256
"""Requests whose images are read or wait for it."""
MAX_PREPARED_BYTES = 2**27
"""Of all images of a prompt: they travel to the engine in one message."""
_MAX_FETCHED_BYTES = 2**28  # of all requests, by the most that each may fetch
_FETCH_THREADS = 8
_DECODE_THREADS = min(4, os.cpu_count() or 1)

Place = Callable[[RenderedPrompt, Sequence[Any]], RenderedPrompt]
"""The prompt with prepared images in place of their placeholders; raises ApiError."""


class Images(Protocol):
    """What a server does with the images of requests. Belongs to one event loop. `most`: of one
    request."""

    @property
    def most(self) -> int: ...

    async def read(self, sent: Sequence[SentImage], owner: MediaOwner) -> Sequence[Prepared]:
        """The images as the model's encoder takes them.

        Raises:
            ApiError: 400 naming the part, 429 if too many requests wait.
        """
        ...

    def reset_cache(self) -> None:
        """Forgets images of earlier requests, in all processes of the server."""
        ...

    async def place(self, prompt: RenderedPrompt, images: Sequence[Prepared]) -> RenderedPrompt:
        """The prompt with `images` in place of its placeholders.

        Raises:
            ApiError: 400 if the template wrote more or fewer placeholders, or an image does not
                fit the model.
        """
        ...


class NoImages:
    """Of a model that takes no images, or a server that cannot prepare them."""

    def __init__(self, why: str = "this model takes parts of type `text` only") -> None:
        """`why` is the sentence of refusals."""
        self._why = why
        self.most = 0

    async def read(self, sent: Sequence[SentImage], owner: MediaOwner) -> Sequence[Prepared]:
        """Refuses the first image."""
        if sent:
            raise bad_request(f"`{sent[0].where}.type` is 'image_url'; {self._why}.", "messages")
        return ()

    def reset_cache(self) -> None:
        """There is none."""

    async def place(self, prompt: RenderedPrompt, images: Sequence[Prepared]) -> RenderedPrompt:
        """Text stays as it is."""
        return prompt


class KeptImages:
    """Images of earlier requests. `metrics` counts how many images of requests were among them;
    None: they are not counted."""

    def __init__(self, cache: PreparedCache, metrics: RequestMetrics | None = None) -> None:
        self.cache = cache
        self._metrics = metrics

    @classmethod
    def of(cls, config: MediaConfig, shared_folder: str, metrics: RequestMetrics) -> KeptImages:
        """Those of a process; the server's share a folder, unless there is one ("")."""
        resets = Path(shared_folder) / "media_resets" if shared_folder else None
        return cls(PreparedCache(config.cache_bytes, resets), metrics)

    def named(self, image: SentImage, owner: MediaOwner) -> Prepared | None:
        """The image that `owner` sent before by the name that `image` has; None if there is none.

        Raises:
            ApiError: 400: there is none, and the part has no URL.
        """
        if not image.uuid:
            return None
        found = self.cache.get(uuid_key(owner, image.uuid)) if self.cache.keeps else None
        if found is None and not image.url:
            raise bad_request(
                f"`{image.where}` has no `image_url`, and this server does not have the image of"
                " its `uuid` (any longer): send the image again.",
                "messages",
            )
        return found

    def count(self, work: _Work) -> None:
        """Counts the images of a request."""
        if self._metrics is not None and self.cache.keeps:
            num_found = sum(image is not None for image in work.found)
            self._metrics.media_cache(len(work.sent), num_found)


class _Work(NamedTuple):
    """Images of a request, and those of them that were `found`."""

    sent: Sequence[SentImage]
    owner: MediaOwner
    found: list[Prepared | None]

    def to_fetch(self) -> list[SentImage]:
        """The images at URLs."""
        return [
            image
            for image, found in zip(self.sent, self.found, strict=True)
            if found is None and not _is_data(image)
        ]

    def key(self, at: int, data: bytes) -> MediaKey:
        """What image `at`, whose file is `data`, is kept by."""
        uuid = self.sent[at].uuid
        return uuid_key(self.owner, uuid) if uuid else content_key(self.owner.cache_salt, data)


class ImageReader:
    """Of a model that takes images."""

    def __init__(
        self,
        config: MediaConfig,
        processor: ImageProcessor,
        place: Place,
        fetch: Callable[[str], bytes] | None = None,
        kept: KeptImages | None = None,
    ) -> None:
        """Joins the limits, the model's processor, and what places images in prompts. `fetch`, for
        tests, is in place of `MediaFetcher.fetch`; `kept` None: nothing is kept."""
        from pagemill.render.media.decode import ImageLimits
        from pagemill.render.media.fetch import MediaFetcher

        self.most = config.max_images
        self._background = config.background
        self._limits = ImageLimits(config.max_image_bytes, config.max_image_pixels)
        fetcher = MediaFetcher(
            domains=config.domains,
            max_bytes=config.max_image_bytes,
            timeout_s=config.media_fetch_timeout,
        )
        self._fetch = fetch or fetcher.fetch
        self._processor = processor
        self._place = place
        self._kept = kept or KeptImages(PreparedCache(0))
        self._num_waiting = 0
        self._room = Capacity(_MAX_FETCHED_BYTES)
        self._fetching = ThreadPoolExecutor(_FETCH_THREADS, "image-fetch")
        self._decoding = ThreadPoolExecutor(_DECODE_THREADS, "image-decode")

    async def read(self, sent: Sequence[SentImage], owner: MediaOwner) -> Sequence[Prepared]:
        """See `Images.read`."""
        if not sent:
            return ()
        if len(sent) > self.most:
            raise bad_request(
                f"`messages` has {len(sent)} images; at most {self.most} are taken"
                " (--limit-mm-per-prompt).",
                "messages",
            )
        if self._num_waiting >= MAX_WAITING:
            raise ApiError(429, "Too many requests wait for their images; try again.")
        work = _Work(sent, owner, [self._kept.named(image, owner) for image in sent])
        self._num_waiting += 1
        fetched = len(work.to_fetch()) * self._limits.max_bytes
        try:
            await self._room.take(fetched)
            try:
                return await self._prepared(work)
            finally:
                self._room.give(fetched)
        finally:
            self._num_waiting -= 1
            self._kept.count(work)

    async def place(self, prompt: RenderedPrompt, images: Sequence[Prepared]) -> RenderedPrompt:
        """See `Images.place`."""
        if not images:
            return self._place(prompt, images)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoding, self._place, prompt, images)

    def reset_cache(self) -> None:
        """See `Images.reset_cache`."""
        self._kept.cache.reset()

    async def _prepared(self, work: _Work) -> Sequence[Prepared]:
        loop = asyncio.get_running_loop()
        files = await asyncio.gather(
            *(
                loop.run_in_executor(self._fetching, self._fetched, image)
                for image in work.to_fetch()
            )
        )
        return await loop.run_in_executor(self._decoding, self._decoded, work, files)

    def _fetched(self, image: SentImage) -> bytes:
        try:
            return self._fetch(image.url)
        except RenderError as error:
            raise _refusal(image, error) from error

    def _decoded(self, work: _Work, fetched: Sequence[bytes]) -> Sequence[Prepared]:
        from pagemill.render.media.decode import data_of

        files = iter(fetched)
        prepared: list[Prepared] = []
        size = 0
        for at, image in enumerate(work.sent):
            found = work.found[at]
            if found is None:
                try:
                    data = data_of(image.url, self._limits) if _is_data(image) else next(files)
                    found = self._prepare(work, at, data)
                except RenderError as error:
                    raise _refusal(image, error) from error
            prepared.append(found)
            size += prepared_bytes(found)
            if size > MAX_PREPARED_BYTES:
                remedy = "fewer" if _is_tiled(found) else "smaller ones, or fewer"
                raise bad_request(
                    f"`{image.where}` and the images before it are too large together: prepared"
                    f" images of a prompt have at most {MAX_PREPARED_BYTES} bytes; send {remedy}.",
                    "messages",
                )
        return prepared

    def _prepare(self, work: _Work, at: int, data: bytes) -> Prepared:
        """The image of the file `data`, which is kept."""
        from pagemill.render.media.decode import decoded

        cache, key = self._kept.cache, work.key(at, data)
        if cache.keeps and not work.sent[at].uuid:
            work.found[at] = cache.get(key)
        found = work.found[at]
        if found is None:
            found = self._processor(decoded(data, self._limits, self._background))
            if cache.keeps:
                cache.put(key, found)
        return found


def open_images(
    config: MediaConfig, folder: Path, max_tokens: int, place: Place, kept: KeptImages | None = None
) -> ImageReader | NoImages:
    """The images of a model with an encoder, whose files are in `folder`.

    Args:
        config: limits.
        folder: the checkpoint.
        max_tokens: of an image.
        place: puts prepared images into prompts.
        kept: images of earlier requests; None: nothing is kept.

    Raises:
        ConfigError: the processor has no such settings (`mm_processor_kwargs`).
    """
    try:
        from pagemill.render.media.processors import KNOWN, open_processor
    except ImportError:
        return NoImages("this server has no Pillow to read images: pip install 'pagemill[images]'")
    try:
        processor = open_processor(folder, max_tokens, config.mm_processor_kwargs)
    except RenderError as error:
        if config.mm_processor_kwargs:
            raise ConfigError(f"--mm-processor-kwargs: {error.message}") from error
        return NoImages(
            "how this model's images are prepared is not known: its folder needs a"
            f" preprocessor_config.json of {', '.join(KNOWN)}"
        )
    return ImageReader(config, processor, place, kept=kept)


def _is_data(image: SentImage) -> bool:
    return image.url[:5].lower() == "data:"


def _is_tiled(image: Prepared) -> bool:
    """True: its size does not depend on how many pixels it had."""
    return (image[0] if isinstance(image, tuple) else image).ndim == 4


def _refusal(image: SentImage, error: RenderError) -> ApiError:
    return bad_request(f"`{image.where}` cannot be read: {error.message}.", "messages")
