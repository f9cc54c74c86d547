"""Streams of chat completions, with their times."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import httpx

_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Run:
    """What some streams at once took. `first_s`: the time to the first token of each, in seconds;
    `tokens_per_s`: of all streams together, from the last first token to the first last one."""

    first_s: tuple[float, ...]
    tokens_per_s: float


async def run_streams(base_url: str, bodies: list[dict[str, Any]]) -> Run:
    """Sends all bodies at once.

    Raises:
        httpx.HTTPError: the server refused one, or is not there.
    """
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT_S, limits=limits) as client:
        times = await asyncio.gather(*(_stream(client, body) for body in bodies))
    begin, end = max(each[1] for each in times), min(each[-1] for each in times)
    num_tokens = sum(begin < at <= end for each in times for at in each[1:])
    return Run(
        tuple(each[1] - each[0] for each in times),
        num_tokens / (end - begin) if end > begin else 0.0,
    )


async def _stream(client: httpx.AsyncClient, body: dict[str, Any]) -> list[float]:
    """When the request was sent, and when each token came."""
    times = [time.perf_counter()]
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.is_error:
            await response.aread()
            response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choices = json.loads(line.removeprefix("data: "))["choices"]
            if not choices:
                continue
            num_tokens = len(choices[0].get("token_ids") or ())
            times += [time.perf_counter()] * num_tokens
    if len(times) == 1:
        raise httpx.DecodingError("the stream has no `token_ids`")
    return times
