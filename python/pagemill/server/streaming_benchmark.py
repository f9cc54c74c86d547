"""What a streamed token costs the server's thread: a fake engine, a real uvicorn, real sockets.

    python -m pagemill.server.streaming_benchmark --rate 2000 --streams 32

Prints microseconds of CPU per token and the share of a core that the rate takes. The client runs in
a process of its own; of the server's process only the event loop's thread counts, which is all that
stands between the engine and the socket.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time

import uvicorn
import uvloop

from pagemill.config import ServerConfig
from pagemill.engine.fake_engine import FakeEngine, FakeOptions
from pagemill.server.app import create_app
from pagemill.server.fake_server import make_pipeline
from pagemill.server.state import ServerState

_CLIENT = """
import asyncio, json, sys
async def one(port, tokens, path):
    body = {"max_tokens": tokens, "stream": True}
    message = {"role": "user", "content": "a"}
    body |= {"messages": [message]} if "chat" in path else {"prompt": "a"}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
    writer.write(head.encode() + b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data)
    got = b""
    while b"[DONE]" not in got[-64:]:
        got = got[-64:] + await reader.read(65536)
    writer.close()
async def main():
    port, streams, tokens, path = sys.argv[1:]
    await asyncio.gather(*[one(port, int(tokens), path) for _ in range(int(streams))])
asyncio.run(main())
"""


async def measure(rate: float, streams: int, tokens: int, path: str) -> dict[str, float]:
    """CPU seconds of this thread while `streams` clients read `tokens` tokens each."""
    engine = FakeEngine(FakeOptions(step_s=streams / rate))
    state = ServerState(ServerConfig())
    pipeline = await make_pipeline(engine, max_model_len=100_000)
    state.serve(pipeline, engine.stats)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        create_app(state), http="httptools", lifespan="off", log_level="warning", access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    arguments = [str(listener.getsockname()[1]), str(streams), str(tokens), path]
    wall, cpu = time.perf_counter(), time.thread_time()
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", _CLIENT, *arguments)
    if await client.wait() != 0:
        raise subprocess.CalledProcessError(client.returncode or 1, "client")
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    server.should_exit = True
    await serving
    await pipeline.engine.shutdown()
    engine.shutdown()
    total = streams * tokens
    return {
        "tokens_per_s": round(total / wall, 1),
        "cpu_us_per_token": round(cpu / total * 1e6, 2),
        "core_share_at_2000_tokens_per_s": round(cpu / total * 2000, 4),
    }


def main() -> None:
    """Parses arguments, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=2000, help="tokens per second in all")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=500, help="per stream")
    parser.add_argument("--path", default="/v1/completions")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(measure(options.rate, options.streams, options.tokens, options.path))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
