"""Images of requests: fetched or decoded in threads, and placed in prompts.

sent = image_parts(request.messages)
prepared = await images.read(sent)
prompt = await images.place(prompt, prepared)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pagemill.config.media import MediaConfig
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.errors import RenderError
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

    async def read(self, sent: Sequence[SentImage]) -> Sequence[Prepared]:
        """The images as the model's encoder takes them.

        Raises:
            ApiError: 400 naming the part, 429 if too many requests wait.
        """
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

    async def read(self, sent: Sequence[SentImage]) -> Sequence[Prepared]:
        """Refuses the first image."""
        if sent:
            raise bad_request(f"`{sent[0].where}.type` is 'image_url'; {self._why}.", "messages")
        return ()

    async def place(self, prompt: RenderedPrompt, images: Sequence[Prepared]) -> RenderedPrompt:
        """Text stays as it is."""
        return prompt


class ImageReader:
    """Of a model that takes images."""

    def __init__(
        self,
        config: MediaConfig,
        processor: ImageProcessor,
        place: Place,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        """Joins the limits, the model's processor, and what places images in prompts. `fetch`, for
        tests, is in place of `MediaFetcher.fetch`."""
        from pagemill.render.media.decode import ImageLimits
        from pagemill.render.media.fetch import MediaFetcher

        self.most = config.max_images
        self._limits = ImageLimits(config.max_image_bytes, config.max_image_pixels)
        fetcher = MediaFetcher(
            domains=config.domains,
            max_bytes=config.max_image_bytes,
            timeout_s=config.media_fetch_timeout,
        )
        self._fetch = fetch or fetcher.fetch
        self._processor = processor
        self._place = place
        self._num_waiting = 0
        self._room = Capacity(_MAX_FETCHED_BYTES)
        self._fetching = ThreadPoolExecutor(_FETCH_THREADS, "image-fetch")
        self._decoding = ThreadPoolExecutor(_DECODE_THREADS, "image-decode")

    async def read(self, sent: Sequence[SentImage]) -> Sequence[Prepared]:
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
        self._num_waiting += 1
        fetched = sum(not _is_data(image) for image in sent) * self._limits.max_bytes
        try:
            await self._room.take(fetched)
            try:
                return await self._prepared(sent)
            finally:
                self._room.give(fetched)
        finally:
            self._num_waiting -= 1

    async def place(self, prompt: RenderedPrompt, images: Sequence[Prepared]) -> RenderedPrompt:
        """See `Images.place`."""
        if not images:
            return self._place(prompt, images)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoding, self._place, prompt, images)

    async def _prepared(self, sent: Sequence[SentImage]) -> Sequence[Prepared]:
        loop = asyncio.get_running_loop()
        files = await asyncio.gather(
            *(
                loop.run_in_executor(self._fetching, self._fetched, image)
                for image in sent
                if not _is_data(image)
            )
        )
        return await loop.run_in_executor(self._decoding, self._decoded, sent, files)

    def _fetched(self, image: SentImage) -> bytes:
        try:
            return self._fetch(image.url)
        except RenderError as error:
            raise _refusal(image, error) from error

    def _decoded(self, sent: Sequence[SentImage], fetched: Sequence[bytes]) -> Sequence[Prepared]:
        from pagemill.render.media.decode import data_of, decoded

        files = iter(fetched)
        prepared: list[Prepared] = []
        size = 0
        for image in sent:
            try:
                data = data_of(image.url, self._limits) if _is_data(image) else next(files)
                prepared.append(self._processor(decoded(data, self._limits)))
            except RenderError as error:
                raise _refusal(image, error) from error
            last = prepared[-1]
            size += (last[0] if isinstance(last, tuple) else last).nbytes
            if size > MAX_PREPARED_BYTES:
                raise bad_request(
                    f"`{image.where}` and the images before it are too large together: send"
                    " smaller ones, or fewer.",
                    "messages",
                )
        return prepared


def open_images(
    config: MediaConfig, folder: Path, max_tokens: int, place: Place
) -> ImageReader | NoImages:
    """The images of a model with an encoder, whose files are in `folder`.

    Args:
        config: limits.
        folder: the checkpoint.
        max_tokens: of an image.
        place: puts prepared images into prompts.
    """
    try:
        from pagemill.render.media.processors import KNOWN, open_processor
    except ImportError:
        return NoImages("this server has no Pillow to read images: pip install 'pagemill[images]'")
    try:
        processor = open_processor(folder, max_tokens)
    except RenderError:
        return NoImages(
            "how this model's images are prepared is not known: its folder needs a"
            f" preprocessor_config.json of {', '.join(KNOWN)}"
        )
    return ImageReader(config, processor, place)


def _is_data(image: SentImage) -> bool:
    return image.url[:5].lower() == "data:"


def _refusal(image: SentImage, error: RenderError) -> ApiError:
    return bad_request(f"`{image.where}` cannot be read: {error.message}.", "messages")
