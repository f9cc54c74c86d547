"""Many clients that each send one request after the other, and wait for as long as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field

_REFUSED = frozenset({429, 503})


@dataclass
class Outcome:
    """What the clients of one run got."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    seconds: list[float] = field(default_factory=list[float])
    """Of each request that was answered with 200."""
    retry_after_s: list[int] = field(default_factory=list[int])
    mistakes: list[str] = field(default_factory=list[str])
    """Answers that should not be."""

    def percentile(self, share: float) -> float:
        """The time that `share` of the answered requests did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Clients:
    """Clients of the server at `port`, which send `body` to `path`.

    A connection of its own for each, in plain HTTP/1.1: the generator has to take little time
    beside the server.
    """

    def __init__(self, port: int, path: str, body: object) -> None:
        content = json.dumps(body).encode()
        self._port = port
        self._request = (
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (path.encode(), len(content), content)
        )

    async def run(self, count: int, seconds: float) -> Outcome:
        """`count` clients come at once; after `seconds` each leaves when it has its answer."""
        outcome = Outcome()
        end = time.monotonic() + seconds
        await asyncio.gather(*[self._client(end, outcome) for _ in range(count)])
        return outcome

    async def _client(self, end: float, outcome: Outcome) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while time.monotonic() < end:
                began = time.monotonic()
                writer.write(self._request)
                status, headers = await _answer(reader)
                outcome.statuses[status] += 1
                if status == 200:
                    outcome.seconds.append(time.monotonic() - began)
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


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes]]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(b":") for x in lines)}
    await reader.readexactly(int(headers[b"content-length"]))
    return int(first.split()[1]), headers
