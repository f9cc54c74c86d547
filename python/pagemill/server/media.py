"""Media of requests: fetched or decoded in threads, kept, and placed in prompts.

sent = media_parts(request.messages)
prepared = await media.read(sent, owner)
prompt = await media.place(prompt, prepared, owner.tenant)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pagemill.config import ConfigError
from pagemill.config.media import MEDIA_KINDS, MediaConfig
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.errors import RenderError
from pagemill.render.media.cache import MediaKey, PreparedCache
from pagemill.render.media.data_url import data_of, is_data_url
from pagemill.render.media.embeds import MediaEmbeds
from pagemill.render.media.encoder_servers import EncoderFiles, MediaUnavailableError
from pagemill.render.media.media_files import (
    MediaFiles,
    MissingPackageError,
    open_files,
    read_with_sound,
)
from pagemill.render.stop import Stop
from pagemill.server.capacity import Capacity
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.media_apart import MediaApart
from pagemill.server.media_work import KeptMedia, MediaBudget, MediaWork
from pagemill.server.protocol.media import SentMedia
from pagemill.server.shared_places import SharedPlaces
from pagemill.server.threads import Threads

MAX_WAITING = 256
"""Requests whose media are read or wait for it."""
MAX_PREPARED_BYTES = 2**27
"""Of all media of a prompt: they travel to the engine in one message."""
_MAX_FETCHED_BYTES = 2**28  # of all requests, by the most that each may fetch
_FETCH_THREADS = 8
_DECODE_THREADS = min(4, os.cpu_count() or 1)

Place = Callable[[RenderedPrompt, Sequence[PreparedMedia]], RenderedPrompt]
"""The prompt with prepared media in place of their placeholders; raises ApiError."""


class Media(Protocol):
    """What a server does with the media of requests. Belongs to one event loop. `kinds`: those that
    requests may have; `max_audio_s`: the longest audio, in seconds. `tenant` is whose share of the
    threads a call uses."""

    @property
    def kinds(self) -> Sequence[MediaKind]: ...

    @property
    def max_audio_s(self) -> float: ...

    async def read(
        self, sent: Sequence[SentMedia], owner: MediaOwner, budget: MediaBudget | None = None
    ) -> Sequence[PreparedMedia]:
        """The media as the model takes them. `budget`: that of a request of many prompts.

        Raises:
            ApiError: 400 naming the part, or that the budget is spent; 429 if too many requests
                wait.
        """
        ...

    async def read_file(
        self, kind: MediaKind, data: bytes, param: str, tenant: str
    ) -> PreparedMedia:
        """What the file `data`, a request's field `param`, holds, as the model takes it.

        Raises:
            ApiError: 400 naming the field.
        """
        ...

    async def fetch_file(self, kind: MediaKind, url: str, param: str, tenant: str) -> bytes:
        """The file at `url`, a data: URL or one of a host that is allowed; `param` is the field
        that has it.

        Raises:
            ApiError: 400: it cannot be fetched, or is too large, or there may be none of `kind`;
                429: too many requests wait.
        """
        ...

    def max_bytes(self, kind: MediaKind, param: str) -> int:
        """Of a file that is a request's field `param`.

        Raises:
            ApiError: 400: there may be none of this kind.
        """
        ...

    def reset_cache(self) -> None:
        """Forgets media of earlier requests, in all processes of the server."""
        ...

    async def place(
        self,
        prompt: RenderedPrompt,
        media: Sequence[PreparedMedia],
        tenant: str,
        budget: MediaBudget | None = None,
    ) -> RenderedPrompt:
        """The prompt with `media` in place of its placeholders. `budget`: see `read`.

        Raises:
            ApiError: 400 if the template wrote more or fewer placeholders, or an item does not fit
                the model, or the budget is spent.
        """
        ...


class NoMedia:
    """Of a model that takes no media, or a server that cannot prepare them."""

    def __init__(self, why: str = "this model takes parts of type `text` only") -> None:
        """`why` is the sentence of refusals."""
        self._why = why
        self.kinds: Sequence[MediaKind] = ()
        self.max_audio_s = 0.0

    async def read(
        self, sent: Sequence[SentMedia], owner: MediaOwner, budget: MediaBudget | None = None
    ) -> Sequence[PreparedMedia]:
        """Refuses the first item."""
        del budget
        if sent:
            raise _wrong_kind(sent[0], self._why)
        return ()

    async def read_file(
        self, kind: MediaKind, data: bytes, param: str, tenant: str
    ) -> PreparedMedia:
        """Refuses the file."""
        del data, tenant
        raise _no_files(kind, param, self._why)

    async def fetch_file(self, kind: MediaKind, url: str, param: str, tenant: str) -> bytes:
        """Refuses the file."""
        del url, tenant
        raise _no_files(kind, param, self._why)

    def max_bytes(self, kind: MediaKind, param: str) -> int:
        """Refuses files."""
        raise _no_files(kind, param, self._why)

    def reset_cache(self) -> None:
        """There is none."""

    async def place(
        self,
        prompt: RenderedPrompt,
        media: Sequence[PreparedMedia],
        tenant: str,
        budget: MediaBudget | None = None,
    ) -> RenderedPrompt:
        """Text stays as it is."""
        del tenant, budget
        return prompt


class MediaReader:
    """Of a model that takes media."""

    def __init__(
        self,
        config: MediaConfig,
        files: Mapping[MediaKind, MediaFiles],
        place: Place,
        fetch: Callable[[str], bytes] | None = None,
        kept: KeptMedia | None = None,
        unread: Mapping[MediaKind, str] | None = None,
    ) -> None:
        """Joins the limits, what reads files of each kind, and what places media in prompts.
        `fetch`, for tests, is in place of `MediaFetcher.fetch`; `kept` None: nothing is kept;
        `unread`: why files of other kinds, which the model takes, cannot be read."""
        from pagemill.render.media.fetch import MediaFetcher

        self.kinds: Sequence[MediaKind] = tuple(kind for kind in files if config.max_items(kind))
        self.max_audio_s = config.max_audio_seconds
        self.embeds: MediaEmbeds | None = None
        """What reads media that are embeddings; None: they are refused."""
        self._most: dict[MediaKind, int] = {kind: config.max_items(kind) for kind in MEDIA_KINDS}
        self._files = files
        self._unread = unread or {}
        self._fetch = {
            kind: fetch
            or MediaFetcher(
                domains=config.domains,
                max_bytes=each.max_bytes,
                timeout_s=config.media_fetch_timeout,
            ).fetch
            for kind, each in files.items()
        }
        self._place = place
        self._kept = kept or KeptMedia(PreparedCache(0))
        self._places = SharedPlaces(
            MAX_WAITING, "Too many requests wait for their media; try again."
        )
        self._room = Capacity(_MAX_FETCHED_BYTES)
        self._fetching = Threads(_FETCH_THREADS, "media-fetch")
        self._decoding = Threads(_DECODE_THREADS, "media-decode")
        self._apart = [each for each in files.values() if isinstance(each, EncoderFiles)]
        for each in self._apart:
            each.servers.count = self._kept.count_encoded
        self._encoding = MediaApart() if self._apart else None

    async def read(
        self, sent: Sequence[SentMedia], owner: MediaOwner, budget: MediaBudget | None = None
    ) -> Sequence[PreparedMedia]:
        """See `Media.read`."""
        if not sent:
            return ()
        self._check_numbers(sent)
        async with self._places.place(owner.tenant):
            work = MediaWork(sent, owner, [self._kept.named(media, owner) for media in sent])
            fetched = sum(self._files[media.kind].max_bytes for media in work.to_fetch())
            try:
                await self._room.take(fetched, owner.tenant)
                try:
                    return await self._prepared(work, budget or MediaBudget())
                finally:
                    self._room.give(fetched, owner.tenant)
            finally:
                self._kept.count(work)

    async def read_file(
        self, kind: MediaKind, data: bytes, param: str, tenant: str
    ) -> PreparedMedia:
        """See `Media.read_file`."""
        if self._apart:
            raise _no_files(kind, param, "media are encoded by other servers (--encoder-urls)")
        stop = Stop()
        try:
            return await self._decoding.run_with(stop, tenant, self._files[kind].read, data, stop)
        except RenderError as error:
            raise bad_request(f"`{param}` cannot be read: {error.message}.", param) from error

    async def fetch_file(self, kind: MediaKind, url: str, param: str, tenant: str) -> bytes:
        """See `Media.fetch_file`."""
        most = self.max_bytes(kind, param)

        def fetch() -> bytes:
            return data_of(url, most) if is_data_url(url) else self._fetch[kind](url)

        async with self._places.place(tenant):
            await self._room.take(most, tenant)
            try:
                return await self._fetching.run(tenant, fetch)
            except RenderError as error:
                refusal = f"`{param}` cannot be fetched: {error.message}."
                raise bad_request(refusal, param) from error
            finally:
                self._room.give(most, tenant)

    def max_bytes(self, kind: MediaKind, param: str) -> int:
        """See `Media.max_bytes`."""
        if kind not in self.kinds:
            why = f"there may be none with this model (--limit-mm-per-prompt, {kind})"
            raise _no_files(kind, param, self._unread.get(kind) or why)
        return self._files[kind].max_bytes

    async def place(
        self,
        prompt: RenderedPrompt,
        media: Sequence[PreparedMedia],
        tenant: str,
        budget: MediaBudget | None = None,
    ) -> RenderedPrompt:
        """See `Media.place`."""
        if not media:
            return self._place(prompt, media)

        def place() -> RenderedPrompt:
            with (budget or MediaBudget()).spend():
                return self._place(prompt, media)

        placed = await self._decoding.run(tenant, place)
        size = sum(item.features.rows.nbytes for item in placed.media)
        if size > MAX_PREPARED_BYTES:
            raise bad_request(
                f"The media of `messages` are too large together: what the model reads of them has"
                f" {size} bytes, and may have {MAX_PREPARED_BYTES}; send less.",
                "messages",
            )
        return placed

    def reset_cache(self) -> None:
        """See `Media.reset_cache`."""
        self._kept.cache.reset()

    def _check_numbers(self, sent: Sequence[SentMedia]) -> None:
        for media in sent:
            if media.embeds is not None:
                if self.embeds is None:
                    raise bad_request(
                        f"`{media.where}` has embeddings, and this server takes none: start it with"
                        " --enable-mm-embeds.",
                        "messages",
                    )
            elif media.kind not in self._files:
                raise _wrong_kind(media, self._unread.get(media.kind) or self._taken())
        for kind, most in self._most.items():
            number = sum(media.kind == kind for media in sent)
            if number > most:
                raise bad_request(
                    f"`messages` has {number} {kind}s; at most {most} are taken"
                    " (--limit-mm-per-prompt).",
                    "messages",
                )

    def _taken(self) -> str:
        if not self._files:
            return "this server takes media as embeddings only"
        if not self.kinds:
            files = " and ".join(self._files)
            return f"this model takes {files}, and this server none (--limit-mm-per-prompt)"
        return f"this model takes {' and '.join(self.kinds)}"

    async def _prepared(self, work: MediaWork, budget: MediaBudget) -> Sequence[PreparedMedia]:
        fetches = [
            asyncio.ensure_future(self._fetching.run(work.owner.tenant, self._fetched, media))
            for media in work.to_fetch()
        ]
        try:
            files = await asyncio.gather(*fetches)
        finally:
            for fetch in fetches:
                fetch.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)
        encoded = await self._encoded(work, files)
        stop = Stop()
        return await self._decoding.run_with(
            stop, work.owner.tenant, self._decoded, work, files, encoded, stop, budget
        )

    async def _encoded(
        self, work: MediaWork, fetched: Sequence[bytes]
    ) -> Mapping[int, PreparedMedia]:
        """The files that other servers encode, by the numbers of their items."""
        if self._encoding is None:
            return {}
        tenant = work.owner.tenant
        listed = await self._decoding.run(tenant, self._to_encode, work, fetched)

        def encode(at: int, data: bytes, stop: Stop) -> PreparedMedia:
            try:
                return self._prepare(work, at, data, stop)
            except RenderError as error:
                raise _refusal(work.sent[at], error) from error

        def check_size(num_bytes: int) -> None:
            if num_bytes > MAX_PREPARED_BYTES:
                raise _too_large("The media of `messages` are")

        return await self._encoding.run(tenant, listed, encode, check_size)

    def _to_encode(
        self, work: MediaWork, fetched: Sequence[bytes]
    ) -> dict[int, tuple[MediaKey, bytes]]:
        """What each item that is not found has for a key, and its file."""
        files, listed = iter(fetched), dict[int, tuple[MediaKey, bytes]]()
        for at, media in enumerate(work.sent):
            if work.found[at] is None and media.embeds is None:
                try:
                    data = self._in_url(media) if is_data_url(media.url) else next(files)
                except RenderError as error:
                    raise _refusal(media, error) from error
                listed[at] = work.key(at, data), data
        return listed

    def _fetched(self, media: SentMedia) -> bytes:
        try:
            return self._fetch[media.kind](media.url)
        except RenderError as error:
            raise _refusal(media, error) from error

    def _decoded(
        self,
        work: MediaWork,
        fetched: Sequence[bytes],
        encoded: Mapping[int, PreparedMedia],
        stop: Stop,
        budget: MediaBudget,
    ) -> Sequence[PreparedMedia]:
        """The media of a request; fewer if `stop` is set, after which they are not wanted."""
        files = iter(fetched)
        prepared: list[PreparedMedia] = []
        size = 0
        for at, media in enumerate(work.sent):
            if stop.is_set():
                break
            found = work.found[at] or encoded.get(at)
            if found is None:
                try:
                    with budget.spend():
                        found = self._decoded_item(work, at, files, stop)
                except RenderError as error:
                    raise _refusal(media, error) from error
            prepared.append(found)
            size += found.num_bytes
            if found.embeddings is not None:  # what is prepared in their place counts, too
                size += found.values.nbytes
            if size > MAX_PREPARED_BYTES:
                remedy = "fewer" if _is_tiled(found) else "smaller ones, or fewer"
                raise _too_large(f"`{media.where}` and the media before it are", remedy)
        return prepared

    def _decoded_item(
        self, work: MediaWork, at: int, files: Iterator[bytes], stop: Stop
    ) -> PreparedMedia:
        media = work.sent[at]
        if media.embeds is None:
            data = self._in_url(media) if is_data_url(media.url) else next(files)
            return self._prepare(work, at, data, stop)
        assert self.embeds is not None  # `read` has checked it
        return self.embeds.read(media.kind, media.embeds)

    def _in_url(self, media: SentMedia) -> bytes:
        return data_of(media.url, self._files[media.kind].max_bytes)

    def _prepare(self, work: MediaWork, at: int, data: bytes, stop: Stop) -> PreparedMedia:
        """The item of the file `data`, which is kept."""
        cache, key = self._kept.cache, work.key(at, data)
        if cache.keeps and not work.sent[at].uuid:
            work.found[at] = cache.get(key)
        found = work.found[at]
        if found is None:
            found = self._read(work.sent[at], data, stop)
            if cache.keeps:
                cache.put(key, found)
        return found

    def _read(self, media: SentMedia, data: bytes, stop: Stop) -> PreparedMedia:
        files = self._files[media.kind]
        if not media.sound:
            return files.read(data, stop)
        if "audio" not in self.kinds:
            none = "this model takes no audio, or this server none (--limit-mm-per-prompt)"
            raise RenderError(self._unread.get("audio", none))
        return read_with_sound(files, self._files["audio"], data, stop)


def open_media(
    config: MediaConfig,
    kinds: Sequence[MediaKind],
    folder: Path,
    max_tokens: int,
    place: Place,
    kept: KeptMedia | None = None,
    *,
    embeds_width: int = 0,
) -> MediaReader | NoMedia:
    """The media of a model with an encoder, whose files are in `folder`.

    Args:
        config: limits.
        kinds: those that the model takes.
        folder: the checkpoint.
        max_tokens: of an item.
        place: puts prepared media into prompts.
        kept: media of earlier requests; None: nothing is kept.
        embeds_width: of rows that media may be; 0: they are refused.

    Raises:
        ConfigError: the processor has no such settings (`mm_processor_kwargs`).
    """
    files: dict[MediaKind, MediaFiles] = {}
    unread: dict[MediaKind, str] = {}
    for kind in kinds:
        try:
            files[kind] = open_files(kind, config, folder, max_tokens)
        except MissingPackageError as error:
            unread[kind] = f"on this server {error.message}"
        except RenderError as error:
            if config.mm_processor_kwargs and not files:
                raise ConfigError(f"--mm-processor-kwargs: {error.message}") from error
            unread[kind] = error.message
            if not config.encoder_servers:
                unread[kind] = f"how this model's media are prepared is not known: {error.message}"
    if not files and not embeds_width:
        return NoMedia(next(iter(unread.values())))
    reader = MediaReader(config, files, place, kept=kept, unread=unread)
    if embeds_width:
        reader.embeds = MediaEmbeds(embeds_width, MAX_PREPARED_BYTES)
    return reader


def media_as_embeds(
    config: MediaConfig, unread: Mapping[MediaKind, str], embeds_width: int, place: Place
) -> MediaReader:
    """The media of a model whose encoders are not loaded: rows of this width alone. `unread` says
    why, by the kinds that the model takes."""
    reader = MediaReader(config, {}, place, unread=unread)
    reader.embeds = MediaEmbeds(embeds_width, MAX_PREPARED_BYTES)
    return reader


def _is_tiled(media: PreparedMedia) -> bool:
    """True: its size does not depend on how many pixels it had."""
    return media.values.ndim == 4


def _wrong_kind(media: SentMedia, why: str) -> ApiError:
    return bad_request(f"`{media.where}` has the type of {media.kind}; {why}.", "messages")


def _no_files(kind: MediaKind, param: str, why: str) -> ApiError:
    return bad_request(f"`{param}`: files of {kind} cannot be read: {why}.", param)


def _too_large(which: str, remedy: str = "smaller ones, or fewer") -> ApiError:
    return bad_request(
        f"{which} too large together: prepared media of a prompt have at most"
        f" {MAX_PREPARED_BYTES} bytes; send {remedy}.",
        "messages",
    )


def _refusal(media: SentMedia, error: RenderError) -> ApiError:
    if isinstance(error, MediaUnavailableError):
        return ApiError(
            503,
            f"`{media.where}`: {error.message}.",
            "messages",
            retry_after_s=error.retry_after_s,
        )
    return bad_request(f"`{media.where}` cannot be read: {error.message}.", "messages")
