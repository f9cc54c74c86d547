"""Many clients that each send one request after the other, and obey Retry-After."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_REFUSED = frozenset({429, 503})


@dataclass
class Outcome:
    """What the clients of one run got."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    served: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Of each request that was answered with 200: when it began, since the start, and how long it
    took; seconds."""
    retry_after_s: list[int] = field(default_factory=list[int])
    mistakes: list[str] = field(default_factory=list[str])
    """Answers that should not be."""

    def percentile(self, share: float, since: float = 0.0) -> float:
        """The time that `share` of the requests served did not exceed that began after `since`."""
        ordered = sorted(took for began, took in self.served if began >= since)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Clients:
    """Clients of the server at `port`, which send one of `bodies` to `path` at a time.

    A connection of its own for each, in plain HTTP/1.1: the generator has to take little time
    beside the server.
    """

    def __init__(self, port: int, path: str, bodies: Sequence[object]) -> None:
        self._port = port
        self._requests = [_request(path, json.dumps(body).encode()) for body in bodies]

    async def run(self, count: int, seconds: float) -> Outcome:
        """`count` clients come at once; after `seconds` each leaves when it has its answer."""
        outcome, rng = Outcome(), random.Random(1)
        start = time.monotonic()
        jobs = [self._client(start, start + seconds, outcome, rng) for _ in range(count)]
        await asyncio.gather(*jobs)
        return outcome

    async def _client(self, start: float, end: float, outcome: Outcome, rng: random.Random) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while time.monotonic() < end:
                began = time.monotonic()
                writer.write(rng.choice(self._requests))
                status, headers = await _answer(reader)
                outcome.statuses[status] += 1
                if status == 200:
                    outcome.served.append((began - start, time.monotonic() - began))
                elif status in _REFUSED and headers.get(b"retry-after", b"").isdigit():
                    wait_s = int(headers[b"retry-after"])
                    outcome.retry_after_s.append(wait_s)
                    await asyncio.sleep(min(wait_s, max(0.0, end - time.monotonic())))
                else:
                    outcome.mistakes.append(f"{status} {headers}")
        except (OSError, asyncio.IncompleteReadError) as error:
            outcome.mistakes.append(repr(error))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _request(path: str, content: bytes) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (path.encode(), len(content), content)
    )


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes]]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(b":") for x in lines)}
    await reader.readexactly(int(headers[b"content-length"]))
    return int(first.split()[1]), headers
