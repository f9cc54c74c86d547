"""The real server process with a gRPC port, in one process and in several."""

from __future__ import annotations

import json
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
BODY = {"messages": MESSAGES, "temperature": 0, "max_tokens": 16}
KEY = (("authorization", "Bearer sk-e2e"),)


class Both(NamedTuple):
    server: ServerProcess
    address: str
    channel: grpc.Channel

    def call(self, name: str, fields: dict[str, Any], metadata: Any = KEY) -> Any:
        method = self.channel.unary_unary(f"/pagemill.v1.Inference/{name}")
        message = StringValue(value=json.dumps(fields)).SerializeToString()
        return json.loads(StringValue.FromString(method(message, 60, metadata)).value)

    def stream(self, name: str, fields: dict[str, Any]) -> Any:
        method = self.channel.unary_stream(f"/pagemill.v1.Inference/{name}")
        return method(StringValue(value=json.dumps(fields)).SerializeToString(), 60, KEY)


@pytest.fixture(scope="module", params=["", "--api-server-count=2"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    with tempfile.TemporaryDirectory() as name:
        options = ["--max-model-len=1024", "--grpc-port=0", "--api-key=sk-e2e"]
        options += filter(None, [request.param])
        with (
            serve(SMOLLM2, Path(name), options) as server,
            grpc.insecure_channel(address := _address(server)) as channel,
        ):
            yield Both(server, address, channel)


def _address(server: ServerProcess) -> str:
    """From the line of the log that comes soon after the server is ready."""
    deadline = time.monotonic() + 60
    while True:
        log = server.log.read_text()
        found = re.search(r"gRPC: (\S+)\n", log)
        if found is not None:
            return found[1]
        assert time.monotonic() < deadline, log
        time.sleep(0.01)


def test_answers_are_those_of_http(both: Both) -> None:
    whole = both.call("Chat", BODY)
    assert "Paris" in whole["choices"][0]["message"]["content"]
    parts: list[str] = []
    for message in both.stream("StreamChat", BODY):
        chunk = json.loads(StringValue.FromString(message).value)
        parts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
    assert "".join(parts) == whole["choices"][0]["message"]["content"]
    rendered = both.call("RenderChat", BODY)
    answered = both.call("Generate", {**rendered, "output_mode": "text"})
    assert answered["choices"][0]["text"] == "".join(parts)


def test_a_key_is_needed(both: Both) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        both.call("Chat", BODY, ())
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert both.channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"


def test_the_example_of_the_documentation(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    exec(found[1].replace("localhost:9000", both.address).replace("KEY", "sk-e2e"), {})
    assert capsys.readouterr().out.strip()


def test_a_drain_lets_a_stream_end(both: Both) -> None:
    """The last test: it stops the server."""
    stream = both.stream("StreamComplete", {"prompt": "a", "max_tokens": 200, "ignore_eos": True})
    chunks = [next(stream)]
    both.server.process.send_signal(signal.SIGTERM)
    chunks += stream
    last = json.loads(StringValue.FromString(chunks[-1]).value)
    assert last["choices"][0]["finish_reason"] == "length"
    assert both.server.process.wait(60) == 0
    assert ".cc:" not in both.server.log.read_text()  # nothing of gRPC's own log
