"""Streaming completions over raw sockets, so that the client costs next to nothing."""

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagemill.benchmark.server_client import ServerClient

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"

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
class Request:
    """A prompt, as token ids or text, and the tokens of its output, or the most of them."""

    prompt: Sequence[int] | str
    output_len: int


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent. `request_rate` is requests per second, Poisson; infinite sends all at once.

    `temperature` None leaves it to the server, as most clients do. Without `ignore_eos` an output
    may be shorter than its request's. `endpoint` is COMPLETIONS or CHAT_COMPLETIONS, which takes
    texts.
    """

    requests: Sequence[Request]
    model: str
    request_rate: float
    max_concurrency: int
    seed: int
    temperature: float | None
    ignore_eos: bool = True
    endpoint: str = COMPLETIONS


async def generate_load(client: ServerClient, load: Load) -> list[RequestTimes]:
    """Sends every request of `load` and returns their histories, in order of sending."""
    rng = random.Random(load.seed)
    free = asyncio.Semaphore(load.max_concurrency)
    tasks: list[asyncio.Task[RequestTimes]] = []
    due = time.perf_counter()
    for request in load.requests:
        if load.request_rate != float("inf"):
            due += rng.expovariate(load.request_rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await free.acquire()
        task = asyncio.create_task(_one(client, load, request))
        task.add_done_callback(lambda _: free.release())
        tasks.append(task)
    return await asyncio.gather(*tasks)


def _body(load: Load, request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": load.model,
        "max_tokens": request.output_len,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.endpoint == CHAT_COMPLETIONS:
        body["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt
    if load.ignore_eos:
        body["ignore_eos"] = True
    if load.temperature is not None:
        body["temperature"] = load.temperature
    return body


def _has_output(event: dict[str, Any]) -> bool:
    """False for the role that begins a chat's answer, and for the end of one that had output."""
    choices = event.get("choices")
    if not choices:
        return False
    delta = choices[0].get("delta")
    return delta is None or any(value for name, value in delta.items() if name != "role")


async def _one(client: ServerClient, load: Load, request: Request) -> RequestTimes:
    times = RequestTimes(sent=time.perf_counter())
    shortest = request.output_len if load.ignore_eos else 0
    try:
        async for event in _events(client, load.endpoint, _body(load, request)):
            now = time.perf_counter()
            if usage := event.get("usage"):
                times.output_tokens = usage["completion_tokens"]
                times.input_tokens = usage.get("prompt_tokens", 0)
            if "error" in event:
                raise ConnectionError(str(event["error"]))
            if not _has_output(event):
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
    client: ServerClient, endpoint: str, body: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    at = client.address
    context = ssl.create_default_context() if at.tls else None
    reader, writer = await asyncio.open_connection(
        at.host, at.port, ssl=context, limit=_LIMIT_BYTES
    )
    try:
        payload = json.dumps(body).encode()
        headers = {
            "Host": f"{at.host}:{at.port}",
            **client.headers,
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
        async for data in _chunks(reader, chunked):
            buffer += data
            while (end := buffer.find(b"\n\n")) >= 0:
                event, buffer = buffer[:end], buffer[end + 2 :]
                if event.startswith(b"data:"):
                    text = event[5:].strip()
                    if text == b"[DONE]":
                        return
                    yield json.loads(text)
        raise ConnectionError("the server broke off its answer")
    finally:
        writer.close()


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
