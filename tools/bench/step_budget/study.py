"""What the longest step costs and brings: the gaps of streams beside throughput, by --max-step-ms.

    PYTHONPATH=python:. python3.11 -m tools.bench.step_budget.study MODEL --limits=0,auto,20,30

Starts one server for each limit and measures them in turns, so that a busy machine slows all of
them; `--peer vllm=8001` adds a server that runs already and serves the same model as `model`. Three
loads: `batch` is a closed loop of short requests of one length, which run side by side from their
first to their last token if nothing keeps them from it; `varied` the same of different lengths;
`arrivals` is steady streams, among which long prompts arrive. Prints medians over the rounds.
"""

import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field

from absl import app, flags

_LIMITS = flags.DEFINE_list("limits", ["0", "auto"], "Values of --max-step-ms.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds, of which medians are taken.", lower_bound=1)
_PYTHON = flags.DEFINE_string("python", sys.executable, "Interpreter of the server.")
_FLAGS = flags.DEFINE_multi_string("flag", [], "Another flag of the server; may be repeated.")
_PEERS = flags.DEFINE_multi_string("peer", [], "NAME=PORT of a server that runs already.")

_VOCABULARY = range(100, 30_000)
_CONCURRENCY = 16
_START_S = 120


@dataclass(slots=True)
class Timings:
    """Times of one load, in seconds."""

    gaps: list[float] = field(default_factory=list[float])  # between tokens of a stream
    first: list[float] = field(default_factory=list[float])  # from a request to its first token
    elapsed: float = 0.0

    def row(self) -> list[float]:
        """Returns ITL p50, p99 and mean and TTFT mean, in ms, and requests per second."""
        ordered = sorted(self.gaps)
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        mean, first = statistics.fmean(self.gaps), statistics.fmean(self.first)
        return [1e3 * p50, 1e3 * p99, 1e3 * mean, 1e3 * first, len(self.first) / self.elapsed]


def prompt(size: int) -> list[int]:
    """Returns tokens that no other prompt begins with."""
    return random.sample(_VOCABULARY, size)


async def stream(port: int, token_ids: list[int], max_tokens: int, timings: Timings) -> None:
    """Generates `max_tokens` tokens and adds the times of their events: a token that completes no
    character has none of its own."""
    body = json.dumps(
        {
            "model": "model",
            "prompt": token_ids,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
    )
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = last = time.monotonic()
    writer.write((head + body).encode())
    count = 0
    while (line := await reader.readline()) and line != b"data: [DONE]\n":
        if not line.startswith(b'data: {"'):
            continue
        now = time.monotonic()
        (timings.gaps if count else timings.first).append(now - last)
        last = now
        count += 1
    writer.close()
    if not line:
        raise RuntimeError(f"{count} tokens after {last - begun:.1f} s, of {max_tokens}")


async def batch(port: int, num_requests: int) -> Timings:
    """16 clients, each with one request at a time: 128 tokens in, 64 out."""
    return await _closed_loop(port, [64] * num_requests)


async def varied(port: int, num_requests: int) -> Timings:
    """The same with 16 to 112 tokens out."""
    lengths = random.Random(1)
    return await _closed_loop(port, [lengths.randint(16, 112) for _ in range(num_requests)])


async def _closed_loop(port: int, outputs: Sequence[int]) -> Timings:
    timings, left = Timings(), iter(outputs)

    async def client() -> None:
        for max_tokens in left:
            await stream(port, prompt(128), max_tokens, timings)

    begun = time.monotonic()
    await asyncio.gather(*(client() for _ in range(_CONCURRENCY)))
    timings.elapsed = time.monotonic() - begun
    return timings


async def arrivals(port: int, num_prompts: int) -> Timings:
    """16 streams, among which prompts of 1,024 tokens arrive: gaps of the streams only."""
    timings, prompts = Timings(), Timings()
    streams = [
        asyncio.create_task(stream(port, prompt(32), 400, timings)) for _ in range(_CONCURRENCY)
    ]
    begun = time.monotonic()
    await asyncio.sleep(0.5)
    for _ in range(num_prompts):
        await stream(port, prompt(1024), 1, prompts)
        await asyncio.sleep(0.2)
    await asyncio.gather(*streams)
    timings.first, timings.elapsed = prompts.first, time.monotonic() - begun
    return timings


class Server:
    """`pagemill serve` with one limit; stops with the block."""

    def __init__(self, python: str, model: str, limit: str, flags: Sequence[str]) -> None:
        """Starts the process; `limit` is a value of --max-step-ms, or "auto"."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        chosen = [] if limit == "auto" else [f"--max-step-ms={limit}"]
        command = [python, "-m", "pagemill.cli", "serve", model, "--served-model-name=model"]
        command += ["--host=127.0.0.1", f"--port={self.port}", *chosen, *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def wait_ready(self) -> None:
        """Waits until it answers.

        Raises:
          RuntimeError: it ended, or does not answer in time.
        """
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5)
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise RuntimeError("the server did not start")

    def stop(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait(timeout=30)


def main(arguments: Sequence[str]) -> None:
    """Prints a table for each load."""
    if len(arguments) != 2:
        raise app.UsageError("one argument is needed: the model")
    random.seed(1)
    limits = _LIMITS.value
    servers = [Server(_PYTHON.value, arguments[1], limit, _FLAGS.value) for limit in limits]
    ports = dict(zip(limits, [server.port for server in servers], strict=True))
    for name, _, port in [peer.partition("=") for peer in _PEERS.value]:
        ports[name] = int(port)
    try:
        for server in servers:
            server.wait_ready()
        for port in ports.values():
            asyncio.run(batch(port, _CONCURRENCY))
        for name, load, count in (
            ("batch", batch, 64),
            ("varied", varied, 96),
            ("arrivals", arrivals, 6),
        ):
            rows: dict[str, list[list[float]]] = {label: [] for label in ports}
            for _ in range(_ROUNDS.value):
                for label, port in ports.items():
                    rows[label].append(asyncio.run(load(port, count)).row())
            print(f"\n{name}\n\n| limit | ITL p50 ms | p99 ms | mean ms | TTFT ms | req/s |")
            print("|---|---|---|---|---|---|")
            for label, measured in rows.items():
                medians = [statistics.median(column) for column in zip(*measured, strict=True)]
                print(f"| {label} | " + " | ".join(f"{x:.1f}" for x in medians) + " |", flush=True)
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    app.run(main)
