"""Files of requests that other servers encode (`--encoder-urls`).

encoded = await apart.run(tenant, files, encode, check_size)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.media.cache import MediaKey
from pagemill.render.stop import Stop
from pagemill.server.threads import Threads

ENCODE_THREADS = 16
"""Which wait for other servers."""


class MediaApart:
    """Encodes the files of a request together. Belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = Threads(ENCODE_THREADS, "media-encode")

    async def run(
        self,
        tenant: str,
        files: Mapping[int, tuple[MediaKey, bytes]],
        encode: Callable[[int, bytes, Stop], PreparedMedia],
        check_size: Callable[[int], None],
    ) -> Mapping[int, PreparedMedia]:
        """The files of a request by the numbers of its items, as they come back.

        Args:
            tenant: whose share of the threads is used.
            files: the key and the content of each; of equal keys one is encoded.
            encode: called in a thread with an item's number, its file, and what ends it.
            check_size: called with the bytes of all that came back. What it raises ends the rest.

        Raises:
            ApiError: what `encode` or `check_size` raises.
        """
        first = {key: at for at, (key, _) in reversed(list(files.items()))}
        stops = {key: Stop() for key in first}
        jobs = {
            key: asyncio.ensure_future(
                self._threads.run_with(stops[key], tenant, encode, at, files[at][1], stops[key])
            )
            for key, at in first.items()
        }
        size = 0
        try:
            for job in asyncio.as_completed(jobs.values()):
                size += (await job).num_bytes
                check_size(size)
        finally:
            for job in jobs.values():
                job.cancel()
            await asyncio.gather(*jobs.values(), return_exceptions=True)
        return {at: jobs[key].result() for at, (key, _) in files.items()}
