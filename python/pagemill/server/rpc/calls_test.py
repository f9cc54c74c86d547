"""Every call over a real channel: what it answers is what its HTTP route answers."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.rpc.table import METHODS, SERVICE
from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.server.testing.fake_server import script
from pagemill.server.testing.rpc_server import RpcServer, answer, request, run_with

MESSAGES = [{"role": "user", "content": "abcd"}]
SHORT = {"max_tokens": 4, "ignore_eos": True, "seed": 1}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
GENERATE = {"token_ids": [97, 98], "sampling_params": SHORT}
BODIES: dict[str, dict[str, Any]] = {
    "Chat": {"messages": MESSAGES, "tools": [TOOL], **SHORT},
    "Embed": {"input": ["ab", "cd"]},
    "Complete": {"prompt": "abcd", "n": 2, "temperature": 1, **SHORT},
    "Detokenize": {"tokens": [97, 98]},
    "Generate": GENERATE,
    "GetModel": {"model": "alias"},
    "GetTokenizer": {},
    "ListModels": {},
    "RenderChat": {"messages": MESSAGES},
    "RenderCompletion": {"prompt": ["ab", "cd"]},
    "StreamChat": {"messages": MESSAGES, **SHORT},
    "StreamComplete": {"prompt": "abcd", "stream_options": {"include_usage": True}, **SHORT},
    "StreamGenerate": GENERATE,
    "Tokenize": {"prompt": "abcd"},
}
CHANGING = {"id", "created", "request_id"}


def _stable(found: Any) -> Any:
    """`found` without what differs from request to request."""
    if isinstance(found, dict):
        return {key: _stable(value) for key, value in found.items() if key not in CHANGING}
    return [_stable(each) for each in found] if isinstance(found, list) else found


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_answer_is_that_of_the_route(method: Any) -> None:
    async def check(server: RpcServer) -> None:
        body = BODIES[method.name]
        path = method.endpoint.path.replace("{model:path}", "alias")
        if method.endpoint.method == "GET":
            expected = await server.fake.client.get(path)
        else:
            sent = body if method.streams is None else {**body, "stream": method.streams}
            expected = await server.fake.client.post(path, json=sent)
        assert expected.status_code == 200, expected.text
        if not method.streams:
            assert _stable(await server.call(method.name, body)) == _stable(expected.json())
            return
        found = [answer(message) async for message in server.stream(method.name, body)]
        *events, done, _ = expected.text.split("\n\n")
        assert done == "data: [DONE]"
        sent = [json.loads(event.removeprefix("data: ")) for event in events]
        assert _joined(found) == _joined(sent) and 1 < len(found) <= len(sent)

    options = FakeOptions(pooled_size=4 if method.name == "Embed" else 0)
    run_with(check, options, renderer=FakeRenderer(MARKED))


def _joined(chunks: list[Any]) -> tuple[str, list[int], list[str]]:
    """Text, tokens and reasons of all chunks: one may have several of the tokens of others."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    texts = [choice.get("text") or choice.get("delta", {}).get("content") for choice in choices]
    tokens = [token for choice in choices for token in choice.get("token_ids", ())]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return "".join(filter(None, texts)), tokens, reasons


def test_a_stream_has_the_text_of_the_whole_answer() -> None:
    async def check(server: RpcServer) -> None:
        body = {"messages": MESSAGES, "max_tokens": 100, "stream_options": {"include_usage": True}}
        chunks = [answer(message) async for message in server.stream("StreamChat", body)]
        parts = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        assert "".join(part.get("content") or "" for part in parts) == "Grüße, world"
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
        assert chunks[-1]["usage"]["completion_tokens"] == len("Grüße, world".encode()) + 1

    run_with(check, FakeOptions(next_token=script("Grüße, world")))


def test_a_client_made_from_the_proto_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, the table and the bytes on the wire belong together."""
    from grpc_tools import protoc

    proto = Path(__file__).with_name("pagemill.proto")
    folders = [f"-I{proto.parent}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    assert protoc.main(["protoc", *folders, str(proto)]) == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    messages = importlib.import_module("pagemill_pb2")
    stubs = importlib.import_module("pagemill_pb2_grpc")
    service = messages.DESCRIPTOR.services_by_name["Inference"]
    assert service.full_name == SERVICE
    declared = {each.name: each.server_streaming for each in service.methods}
    assert declared == {method.name: bool(method.streams) for method in METHODS}

    async def check(server: RpcServer) -> None:
        stub = stubs.InferenceStub(server.channel)
        whole = await stub.Complete(messages.Request(json='{"prompt": "é", "max_tokens": 2}'))
        assert '"text":' in whole.json
        stream = stub.StreamComplete(messages.Request(json='{"prompt": "a", "max_tokens": 2}'))
        assert [part.json async for part in stream]
        assert '"alias"' in (await stub.ListModels(messages.Request())).json

    run_with(check)
    for name in ("pagemill_pb2", "pagemill_pb2_grpc"):
        sys.modules.pop(name)


@pytest.mark.parametrize(
    ("fields", "sentence", "param"),
    [
        ("no JSON", "The body is not valid JSON", ""),
        ("[1]", "must be a JSON object", ""),
        ('{"a": ' * 5000, "", ""),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens", "max_tokens"),
        ({"prompt": "a", "stream": True}, "begins with Stream", "stream"),
        ({"prompt": "a", "request_id": "a b"}, "printable", "request_id"),
        ({"prompt": 5}, "prompt", "prompt"),
        ({"prompt": "a", "suffix": "é"}, "suffix", "suffix"),
        ({}, "`prompt` is required", "prompt"),
    ],
)
def test_bad_fields_are_refused_with_the_sentence_of_http(
    fields: Any, sentence: str, param: str
) -> None:
    async def check(server: RpcServer) -> None:
        code, details, trailers = await server.refusal("Complete", fields)
        assert code is grpc.StatusCode.INVALID_ARGUMENT and sentence in details
        assert trailers.get("error-param", "") == param
        assert trailers["error-type"] in ("Bad Request", "BadRequestError")
        await server.call("Complete", {"prompt": "a"})

    run_with(check)


def test_bytes_are_refused() -> None:
    async def check(server: RpcServer) -> None:
        fields = {"input": "a", "encoding_format": "bytes"}
        code, _, trailers = await server.refusal("Embed", fields)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert trailers["error-param"] == "encoding_format"

    run_with(check, FakeOptions(pooled_size=4))


def test_bad_messages_are_refused() -> None:
    async def check(server: RpcServer) -> None:
        raw = server.channel.unary_unary(f"/{SERVICE}/Complete")
        for message in (b"zzz", b"\x0a\x02\xff\xfe", b"\x0a\xff\xff\xff\x7f"):
            with pytest.raises(grpc.aio.AioRpcError, match="is not a pagemill.v1.Request"):
                await raw(message)
        with pytest.raises(grpc.aio.AioRpcError, match="`prompt` is required"):
            await raw(b"")
        none = server.channel.stream_unary(f"/{SERVICE}/Complete")
        with pytest.raises(grpc.aio.AioRpcError, match="no message"):
            await none(iter(()))
        for path in (f"/{SERVICE}/Nothing", "/other/Complete", "/grpc.health.v1.Health/List"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.channel.unary_unary(path)(request({"prompt": "a"}))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        code, details, _ = await server.refusal("Embed", {"input": "a"})
        assert code is grpc.StatusCode.NOT_FOUND and "/v1/embeddings" in details
        code, details, _ = await server.refusal("Complete", {"prompt": "a", "model": "☃" * 300})
        assert code is grpc.StatusCode.NOT_FOUND and "☃" in details
        assert (await server.call("Complete", {"prompt": "a"}))["choices"]

    run_with(check)


def test_ids_and_times_are_in_the_trailers() -> None:
    async def check(server: RpcServer) -> None:
        method = server.channel.unary_unary(f"/{SERVICE}/Complete")
        call = method(request({"prompt": "a"}), metadata=(("x-request-id", "r-1"),))
        assert answer(await call)["id"] == "cmpl-r-1"
        assert dict(await call.initial_metadata()) == {"x-request-id": "r-1"}
        trailers = dict(await call.trailing_metadata())
        assert trailers["x-request-id"] == "r-1" and "ttft" in trailers["server-timing"]
        _, _, trailers = await server.refusal("Complete", {"prompt": 1, "request_id": "r-2"})
        assert trailers["x-request-id"] == "r-2"

    run_with(check, per_request_metrics=True)


def test_many_calls_at_once() -> None:
    async def check(server: RpcServer) -> None:
        bodies = [{"prompt": "a" * (1 + n % 7), **SHORT} for n in range(64)]
        found = await asyncio.gather(*[server.call("Complete", body) for body in bodies])
        used = [each["usage"]["prompt_tokens"] for each in found]
        assert used == [len(body["prompt"]) for body in bodies]

    run_with(check)
