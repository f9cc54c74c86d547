"""The media of one request while they are read, and those of earlier requests that are kept."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from pagemill.config.media import MediaConfig
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.media.cache import MediaKey, PreparedCache, content_key, uuid_key
from pagemill.render.media.data_url import is_data_url
from pagemill.server.errors import bad_request
from pagemill.server.protocol.media import SentMedia

MAX_SECONDS = 60.0
"""Of processor time, for all media that one request has in many prompts."""


class MediaBudget:
    """What is left of the processor time for the media of one request: a limit for each prompt is
    none for a request of 2,000. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` is the calling thread's, in seconds."""
        self._clock = clock
        self._left_s = MAX_SECONDS
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def spend(self) -> Generator[None]:
        """Counts what the thread does in the context.

        Raises:
            ApiError: 400: there is none left. The message names `messages`.
        """
        if self._left_s <= 0:
            raise bad_request(
                f"The media of `messages` take more than {MAX_SECONDS:g} s of processor time to"
                " read; send fewer or smaller ones in a request.",
                "messages",
            )
        began = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._left_s -= self._clock() - began


class KeptMedia:
    """Media of earlier requests. `metrics` counts how many media of requests were among them; None:
    they are not counted."""

    def __init__(self, cache: PreparedCache, metrics: RequestMetrics | None = None) -> None:
        self.cache = cache
        self._metrics = metrics

    @classmethod
    def of(cls, config: MediaConfig, shared_folder: str, metrics: RequestMetrics) -> KeptMedia:
        """Those of a process; the server's share a folder, unless there is one ("")."""
        resets = Path(shared_folder) / "media_resets" if shared_folder else None
        return cls(PreparedCache(config.cache_bytes, resets), metrics)

    def named(self, media: SentMedia, owner: MediaOwner) -> PreparedMedia | None:
        """The item that `owner` sent before by the name that `media` has; None if there is none.

        Raises:
            ApiError: 400: there is none, and the part has no file.
        """
        if not media.uuid:
            return None
        key = uuid_key(media.kind, owner, media.uuid)._replace(sound=media.sound)
        found = self.cache.get(key) if self.cache.keeps else None
        if found is None and not media.url:
            raise bad_request(
                f"`{media.where}` has no file, and this server does not have the {media.kind} of"
                f" its `uuid` (any longer): send the {media.kind} again.",
                "messages",
            )
        return found

    def count(self, work: MediaWork) -> None:
        """Counts the media of a request."""
        num_files = sum(media.embeds is None for media in work.sent)
        if self._metrics is not None and self.cache.keeps and num_files:
            num_found = sum(media is not None for media in work.found)
            self._metrics.media_cache(num_files, num_found)

    def count_encoded(self, server: str, outcome: str) -> None:
        """Counts a request to another server that encodes media."""
        if self._metrics is not None:
            self._metrics.encoder_request(server, outcome)


class MediaWork(NamedTuple):
    """Media of a request, and those of them that were `found`."""

    sent: Sequence[SentMedia]
    owner: MediaOwner
    found: list[PreparedMedia | None]

    def to_fetch(self) -> list[SentMedia]:
        """The media at URLs."""
        return [
            media
            for media, found in zip(self.sent, self.found, strict=True)
            if found is None and media.embeds is None and not is_data_url(media.url)
        ]

    def key(self, at: int, data: bytes) -> MediaKey:
        """What item `at`, whose file is `data`, is kept by."""
        sent, owner = self.sent[at], self.owner
        if sent.uuid:
            key = uuid_key(sent.kind, owner, sent.uuid)
        else:
            key = content_key(sent.kind, owner.cache_salt, data)
        return key._replace(sound=sent.sound)
