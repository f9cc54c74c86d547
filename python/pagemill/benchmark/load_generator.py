"""Requests over raw sockets, so that the client costs next to nothing."""

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pagemill.benchmark.prompts import Request
from pagemill.benchmark.routes import BOUNDARY, COMPLETIONS, ROUTES, Body, Route, SentFields
from pagemill.benchmark.server_client import ServerClient

Ramp = Literal["linear", "exponential"]
"""How a rate grows."""

_LIMIT_BYTES = 2**24  # of one line or chunk


@dataclass(slots=True)
class RequestTimes:
    """One request's history; times in seconds on one clock, zero if it never happened."""

    sent: float = 0.0
    first: float = 0.0
    last: float = 0.0
    gaps: list[float] = field(default_factory=list[float])  # between streamed events
    output_tokens: int = 0
    input_tokens: int = 0  # as the server counts them; zero if it does not say
    error: str = ""

    @property
    def ok(self) -> bool:
        """Did it get all its tokens?"""
        return not self.error


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent. `request_rate` is requests per second; infinite sends all at once. Their gaps
    have a gamma distribution of the shape `burstiness`: 1 is a Poisson process. `endpoint` is one
    of ROUTES. With `ramp`, the rate of the last request is `last_rate`."""

    requests: Sequence[Request]
    fields: SentFields
    request_rate: float
    max_concurrency: int
    seed: int
    endpoint: str = COMPLETIONS
    burstiness: float = 1.0
    ramp: Ramp | None = None
    last_rate: float = float("inf")

    def rate(self, index: int) -> float:
        """Requests per second where request `index` is sent."""
        if self.ramp is None:
            return self.request_rate
        share = index / max(1, len(self.requests) - 1)
        if self.ramp == "linear":
            return self.request_rate + share * (self.last_rate - self.request_rate)
        return self.request_rate * (self.last_rate / self.request_rate) ** share

    def gap(self, index: int, rng: random.Random) -> float:
        """Seconds between request `index` and the one before it, at a finite rate."""
        return rng.gammavariate(self.burstiness, 1 / (self.burstiness * self.rate(index)))


async def generate_load(client: ServerClient, load: Load) -> list[RequestTimes]:
    """Sends every request of `load` and returns their histories, in order of sending."""
    rng = random.Random(load.seed)
    free = asyncio.Semaphore(load.max_concurrency)
    tasks: list[asyncio.Task[RequestTimes]] = []
    due = time.perf_counter()
    for index, request in enumerate(load.requests):
        if load.request_rate != float("inf"):
            due += load.gap(index, rng)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await free.acquire()
        task = asyncio.create_task(_one(client, load, request))
        task.add_done_callback(lambda _: free.release())
        tasks.append(task)
    return await asyncio.gather(*tasks)


async def _one(client: ServerClient, load: Load, request: Request) -> RequestTimes:
    times = RequestTimes(sent=time.perf_counter())
    route = ROUTES[load.endpoint]
    shortest = request.output_len if route.fixes_length and load.fields.ignore_eos else 0
    body = route.body(request, load.fields)
    try:
        async for event in _events(client, load.endpoint, route, body):
            now = time.perf_counter()
            if usage := route.usage(event):
                times.input_tokens, times.output_tokens = usage
            if "error" in event:
                raise ConnectionError(str(event["error"]))
            if not route.has_output(event):
                continue
            if times.first:
                times.gaps.append(now - times.last)
            else:
                times.first = now
            times.last = now
        if times.output_tokens < shortest:
            times.error = f"{times.output_tokens} tokens instead of {shortest}"
        elif not times.first:
            times.error = "an empty answer"
    except (OSError, ValueError, KeyError, EOFError) as error:
        times.error = str(error) or type(error).__name__
    return times


async def _events(
    client: ServerClient, endpoint: str, route: Route, body: Body
) -> AsyncIterator[dict[str, Any]]:
    """Yields the events of a stream, or the answer of a route that does not stream."""
    at = client.address
    context = ssl.create_default_context() if at.tls else None
    reader, writer = await asyncio.open_connection(
        at.host, at.port, ssl=context, limit=_LIMIT_BYTES
    )
    try:
        form = isinstance(body, bytes)
        payload = body if form else json.dumps(body).encode()
        headers = {
            "Host": f"{at.host}:{at.port}",
            **client.headers,
            **({"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} if form else {}),
            "Content-Length": str(len(payload)),
            "Connection": "close",
        }
        head = f"POST {at.path}{endpoint} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(head.encode() + b"\r\n" + payload)
        await writer.drain()
        status, chunked = await _read_head(reader)
        if status != 200:
            text = (await reader.read(2000)).decode("utf-8", "replace")
            raise ConnectionError(f"HTTP status {status}: {text}")
        buffer = b""
        if not route.streams:
            yield json.loads(b"".join([data async for data in _chunks(reader, chunked)]))
            return
        async for data in _chunks(reader, chunked):
            buffer += data
            while (end := buffer.find(b"\n\n")) >= 0:
                event, buffer = buffer[:end], buffer[end + 2 :]
                text = _data(event)
                if text == b"[DONE]":
                    return
                if text:
                    value = json.loads(text)
                    yield value
                    if route.is_last(value):
                        return
        raise ConnectionError("the server broke off its answer")
    finally:
        writer.close()


def _data(event: bytes) -> bytes:
    """The data of an event, whose name may stand before; b"" for a comment."""
    at = event.find(b"data:")
    begins_line = at == 0 or (at > 0 and event[at - 1] == ord("\n"))
    return event[at + 5 :].strip() if begins_line else b""


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")
    chunked = any(
        line.lower().startswith("transfer-encoding:") and "chunked" in line.lower()
        for line in lines[1:]
    )
    return int(lines[0].split(" ", 2)[1]), chunked


async def _chunks(reader: asyncio.StreamReader, chunked: bool) -> AsyncIterator[bytes]:
    while True:
        if not chunked:
            data = await reader.read(65536)
        else:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = (await reader.readexactly(size + 2))[:-2]
        if not data:
            return
        yield data
