"""What passing a request on costs: a fake engine behind a server, a router, real sockets.

    python -m pagemill.router.routing_benchmark --policy prefix_aware

Prints the microseconds of CPU that the router's thread takes for a request and for a streamed
token, and the time of a request with and without the router. Server and client have a thread and a
process of their own, so that only the router counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Generator

import uvloop

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.router.testing.fake_fleet import MAX_MODEL_LEN, listening, running_router, until
from pagemill.server.testing.fake_server import fake_server

_CLIENT = """
import asyncio, json, sys, time
async def one(port, body):
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
    times = []
    for _ in range(body.pop("repeat")):
        began = time.perf_counter()
        writer.write(head + b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data)
        if body["stream"]:
            got = b""
            while b"[DONE]" not in got:
                got = got[-64:] + await reader.read(65536)
        else:
            got = await reader.readuntil(b"\\r\\n\\r\\n")
            size = got.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0]
            await reader.readexactly(int(size))
        times.append(time.perf_counter() - began)
    writer.close()
    return times
async def main():
    port, streams, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    times = await asyncio.gather(*(one(port, json.loads(body)) for _ in range(streams)))
    print(json.dumps(sum(times, [])))
asyncio.run(main())
"""


@contextlib.contextmanager
def server_thread(options: FakeOptions) -> Generator[str, None, None]:
    """A server with a thread and an event loop of its own; its URL."""
    url: list[str] = []
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with (
            fake_server(options, max_model_len=MAX_MODEL_LEN) as server,
            listening(server.app) as at,
        ):
            url.append(at)
            started.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        yield url[0]
    finally:
        stop.set()
        thread.join()


async def load(url: str, clients: int, **body: object) -> tuple[list[float], float]:
    """Seconds of each request, and CPU seconds that this thread took meanwhile."""
    sent = json.dumps({"prompt": "a" * 500, "ignore_eos": True} | body)
    port = url.rpartition(":")[2]
    cpu = time.thread_time()
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CLIENT, port, str(clients), sent), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await client.communicate()
    return json.loads(out), time.thread_time() - cpu


async def measure(policy: str, requests: int, streams: int, tokens: int) -> dict[str, float]:
    """Costs of a request of one token, one after the other, and of a token of many streams."""
    with server_thread(FakeOptions(step_s=0.0)) as url:
        async with running_router([url], policy=policy, probe_interval=10) as (client, fleet, _):
            await until(lambda: len(fleet.available) == 1)
            routed = str(client.base_url).rstrip("/")
            one = {"repeat": requests, "stream": False, "max_tokens": 1}
            direct, _ = await load(url, 1, **one)
            through, cpu = await load(routed, 1, **one)
    # Tokens one by one, as a model makes them.
    with server_thread(FakeOptions(step_s=streams / 2000)) as url:
        async with running_router([url], policy=policy, probe_interval=10) as (client, fleet, _):
            await until(lambda: len(fleet.available) == 1)
            routed = str(client.base_url).rstrip("/")
            _, of_streams = await load(routed, streams, repeat=1, stream=True, max_tokens=tokens)
    of_request = cpu / requests
    return {
        "request_direct_ms": round(statistics.median(direct) * 1e3, 3),
        "request_routed_ms": round(statistics.median(through) * 1e3, 3),
        "cpu_us_per_request": round(of_request * 1e6, 1),
        "cpu_us_per_token": round((of_streams / streams - of_request) / tokens * 1e6, 2),
    }


def main() -> None:
    """Parses arguments, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="least_loaded")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=500, help="per stream")
    options = parser.parse_args()
    measured = measure(options.policy, options.requests, options.streams, options.tokens)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(measured)))


if __name__ == "__main__":
    main()
