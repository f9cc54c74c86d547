"""What a streamed token costs the server's thread: a fake engine, the server, real sockets.

    python -m pagemill.server.streaming_benchmark --rate 2000 --streams 32 --parsed

With `--parsed` chats reason, answer and call a tool, all of which the server parses; with `--grpc`
completions come over gRPC. Prints microseconds of CPU per token and the share of a core that the
rate takes. The client runs in a process of its own. Of the server's process the event loop's thread
counts, which is all that stands between the engine and the socket; gRPC has threads of its own, so
that the whole process, with the fake engine, is printed as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import uvloop
from absl import app, flags

from pagemill.config import ConnectionConfig, ServerConfig
from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.app import create_app
from pagemill.server.state import ServerState
from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.server.testing.fake_server import make_pipeline
from pagemill.server.transport.http_server import HttpServer

_RATE = flags.DEFINE_float("rate", 2000.0, "Tokens per second of all streams.", lower_bound=1.0)
_STREAMS = flags.DEFINE_integer("streams", 32, "Streams at a time.", lower_bound=1)
_TOKENS = flags.DEFINE_integer("tokens", 500, "Tokens of a stream.", lower_bound=1)
_PATH = flags.DEFINE_enum(
    "path",
    "/v1/completions",
    ["/v1/chat/completions", "/v1/completions", "/v1/messages"],
    "Route that is measured.",
)
_GRPC = flags.DEFINE_boolean("grpc", False, "Completions over gRPC instead of HTTP.")
_PARSED = flags.DEFINE_boolean("parsed", False, "With reasoning and a call of a tool.")

_CLIENT = """
import asyncio, json, sys
async def one(port, tokens, path, parsed):
    body = {"max_tokens": tokens, "stream": True}
    message = {"role": "user", "content": "a"}
    tool = {"type": "function", "function": {"name": "f"}}
    if "messages" in path:
        tool = {"name": "f", "input_schema": {}}
    chat = {"messages": [message], "tools": [tool] if parsed else []}
    body |= {"prompt": "a"} if path == "/v1/completions" else chat
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
    writer.write(head.encode() + b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data)
    got = b""
    while not (b"[DONE]" in got[-64:] or b"message_stop" in got[-64:]):
        read = await reader.read(65536)
        if not read:
            sys.exit(f"the server closed the stream: {got!r}")
        got = got[-64:] + read
    writer.close()
async def main():
    port, streams, tokens, path, parsed = sys.argv[1:]
    chats = [one(port, int(tokens), path, int(parsed)) for _ in range(int(streams))]
    await asyncio.gather(*chats)
asyncio.run(main())
"""
_GRPC_CLIENT = """
import asyncio, json, sys
import grpc.aio
from google.protobuf.wrappers_pb2 import StringValue
async def one(port, tokens):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_stream("/pagemill.v1.Inference/StreamComplete")
        body = json.dumps({"max_tokens": tokens, "prompt": "a"})
        call = method(StringValue(value=body).SerializeToString())
        while await call.read() is not grpc.aio.EOF:
            pass
async def main():
    port, streams, tokens, _, _ = sys.argv[1:]
    await asyncio.gather(*[one(port, int(tokens)) for _ in range(int(streams))])
asyncio.run(main())
"""


def _parsed_output(tokens: int) -> Callable[[int, int, int], int]:
    """The `FakeOptions.next_token` of a model that reasons, answers, and calls a tool."""
    part = tokens // 3 - 20
    head = b'{"name": "f", "arguments": {"text": "'
    output = b"\xf8" + b"reason " * part
    output = output[:part] + b"\xf9" + (b"answer " * part)[:part] + b"\xfa" + head
    return lambda previous, position, seed: output[position] if position < len(output) else 97


@contextlib.asynccontextmanager
async def _http(state: ServerState) -> AsyncGenerator[int]:
    """The HTTP server; its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = HttpServer(create_app(state), ConnectionConfig())
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


@contextlib.asynccontextmanager
async def _grpc(state: ServerState) -> AsyncGenerator[int]:
    """The gRPC listener; its port."""
    from pagemill.server.rpc.listener import RpcListener

    listener = RpcListener(state, KeyRing())
    await listener.start()
    yield int(listener.address.rpartition(":")[2])
    await listener.stop(0)


async def measure(
    rate: float,
    streams: int,
    tokens: int,
    path: str,
    *,
    parsed: bool = False,
    over_grpc: bool = False,
) -> dict[str, float]:
    """CPU seconds of this thread while `streams` clients read `tokens` tokens each."""
    options = FakeOptions(step_s=streams / rate)
    if parsed:
        options = replace(options, next_token=_parsed_output(tokens))
    engine = FakeEngine(options)
    state = ServerState(ServerConfig())
    renderer = FakeRenderer(MARKED if parsed else None)
    pipeline = await make_pipeline(engine, max_model_len=100_000, renderer=renderer)
    state.serve(pipeline, engine.stats)
    serving = _grpc(state) if over_grpc else _http(state)
    async with serving as port:
        arguments = [str(each) for each in (port, streams, tokens, path, int(parsed))]
        wall, cpu, all_cpu = time.perf_counter(), time.thread_time(), time.process_time()
        code = _GRPC_CLIENT if over_grpc else _CLIENT
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *arguments)
        if await client.wait() != 0:
            raise subprocess.CalledProcessError(client.returncode or 1, "client")
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        all_cpu = time.process_time() - all_cpu
    await pipeline.engine.shutdown()
    engine.shutdown()
    total = streams * tokens
    return {
        "tokens_per_s": round(total / wall, 1),
        "cpu_us_per_token": round(cpu / total * 1e6, 2),
        "process_cpu_us_per_token": round(all_cpu / total * 1e6, 2),
        "core_share_at_2000_tokens_per_s": round(cpu / total * 2000, 4),
    }


def main(arguments: Sequence[str]) -> None:
    """Measures and prints JSON."""
    if len(arguments) > 1:
        raise app.UsageError(f"unknown argument {arguments[1]!r}")
    parsed = _PARSED.value
    path = _PATH.value
    if parsed and path == "/v1/completions":
        path = "/v1/chat/completions"
    measured = measure(
        _RATE.value, _STREAMS.value, _TOKENS.value, path, parsed=parsed, over_grpc=_GRPC.value
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(measured)
    print(json.dumps(result))


if __name__ == "__main__":
    app.run(main)
