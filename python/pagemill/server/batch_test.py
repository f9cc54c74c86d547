"""Batch files and `/invocations` get the answers that HTTP gets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.answer import Answer
from pagemill.server.batch import BatchOutput, Send, answer_lines, line_urls, read_lines
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.errors import RETRY_AFTER_S, ApiError
from pagemill.server.speech.line import invoke_line
from pagemill.server.testing.fake_server import EOS, FakeServer, fake_server
from pagemill.server.testing.fake_speech import fake_speech

CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "n": 2, "seed": 5}
COMPLETION = {"prompt": ["a", "b"], "max_tokens": 3, "seed": 5, "echo": True}
EMBEDDING = {"input": ["ab", "c"]}
GENERATE = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}


def line(custom_id: str, url: str, body: Any, method: str = "POST") -> bytes:
    fields = {"custom_id": custom_id, "method": method, "url": url, "body": body}
    return json.dumps(fields).encode() + b"\n"


async def answers(
    server: FakeServer, lines: list[bytes], concurrency: int = 4, send: Send | None = None
) -> list[Any]:
    written: list[BatchOutput] = []

    async def invoke(endpoint: Endpoint, fields: dict[str, Any]) -> Answer:
        return await invoke_line(server.state, endpoint, fields, ANONYMOUS)

    async def write(output: BatchOutput) -> None:
        written.append(output)

    urls = line_urls(server.state.endpoints)
    await answer_lines(read_lines(lines), urls, send or invoke, write, concurrency)
    return [json.loads(msgspec.json.encode(output)) for output in written]


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("id", "created")}


@pytest.mark.parametrize(
    ("pooled_size", "requests"), [(0, GENERATE), (4, {"/v1/embeddings": EMBEDDING})]
)
def test_http_batch_and_invocations_answer_alike(pooled_size: int, requests: Any) -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=pooled_size)) as server:
            lines = [line(url, url, fields) for url, fields in requests.items()]
            batch = {a["custom_id"]: a for a in await answers(server, lines)}
            for url, fields in requests.items():
                http = await server.client.post(url, json=fields)
                invoked = await server.client.post("/invocations", json=fields)
                answer = batch[url]
                assert answer["error"] is None and answer["response"]["status_code"] == 200
                assert http.status_code == invoked.status_code == 200
                expected = comparable(http.json())
                assert comparable(answer["response"]["body"]) == expected
                assert comparable(invoked.json()) == expected
                assert answer["response"]["body"]["id"].endswith(answer["response"]["request_id"])
                refused = {**fields, "model": "absent"}
                (answer,) = await answers(server, [line("x", url, refused)])
                http = await server.client.post(url, json=refused)
                assert answer["response"]["status_code"] == http.status_code == 404
                assert answer["response"]["body"] == http.json()

    asyncio.run(body())


def test_bytes_are_refused_in_a_batch() -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            fields = {**EMBEDDING, "encoding_format": "bytes_only"}
            (answer,) = await answers(server, [line("a", "/v1/embeddings", fields)])
            assert answer["response"]["status_code"] == 400
            assert answer["response"]["body"]["error"]["param"] == "encoding_format"

    asyncio.run(body())


def test_audio_in_a_batch() -> None:
    url = "/v1/audio/transcriptions"
    hi = {ord("="): ord("h"), ord("h"): ord("i"), ord("i"): EOS}
    options = FakeOptions(next_token=lambda previous, position, seed: hi[previous])

    async def body() -> None:
        async with fake_server(options, speech=fake_speech()) as server:

            async def answered(**fields: Any) -> tuple[int, Any]:
                (answer,) = await answers(server, [line("x", url, {"language": "en"} | fields)])
                return answer["response"]["status_code"], answer["response"]["body"]

            status, answer = await answered(file_url="fake:aaaa", temperature=0.5)
            assert (status, answer["text"]) == (200, "hi")
            for wrong, param in (
                ({}, "file_url"),
                ({"file_url": "http://x"}, "file_url"),
                ({"file_url": "fake:a", "response_format": "srt"}, "response_format"),
                ({"file_url": "fake:a", "stream": True}, "stream"),
                ({"file_url": "fake:a", "file": "a"}, "file"),
            ):
                status, answer = await answered(**wrong)
                assert (status, answer["error"]["param"]) == (400, param), answer
        async with fake_server() as server:
            (answer,) = await answers(server, [line("x", url, {"file_url": "fake:a"})])
            assert answer["response"]["status_code"] == 404

    asyncio.run(body())


def test_messages_in_a_batch() -> None:
    async def body() -> None:
        fields = {"messages": CHAT["messages"], "max_tokens": 3}
        refused = {**fields, "model": "absent"}
        async with fake_server() as server:
            lines = [
                line(str(at), "/v1/messages", each) for at, each in enumerate((fields, refused))
            ]
            found = {a["custom_id"]: a["response"] for a in await answers(server, lines)}
            assert found["0"]["body"]["type"] == "message"
            assert found["0"]["body"]["id"] == f"msg_{found['0']['request_id']}"
            http = await server.client.post("/v1/messages", json=refused)
            assert (found["1"]["status_code"], found["1"]["body"]) == (404, http.json())

    asyncio.run(body())


def test_each_line_has_its_own_error() -> None:
    url = "/v1/completions"
    good = [line(str(i), url, {"prompt": "a", "max_tokens": 2}) for i in range(3)]
    bad = [
        *(b"{\n", b"\n", b'{"custom_id": "a"}\n', b"\xff\n", b"[" * 100_000 + b"\n"),
        *(line("get", url, {}, "GET"), line("0", url, {"prompt": "again"})),
        *(line("empty", url, {}), line("streams", url, {"prompt": "a", "stream": True})),
        *(line("embeds", "/v1/embeddings", EMBEDDING), line("nope", "/nope", {})),
    ]

    async def body() -> None:
        async with fake_server() as server:
            found = await answers(server, [*good, *bad])
            assert len(found) == len(good) + len(bad) - 1  # one line is blank
            assert len({a["id"] for a in found}) == len(found)
            status = {a["custom_id"]: a["response"]["status_code"] for a in found if a["response"]}
            refusals = {"empty": 400, "streams": 400, "embeds": 404, "nope": 404}
            assert status == {"0": 200, "1": 200, "2": 200, **refusals}
            errors = [a["error"]["message"] for a in found if a["error"]]
            assert [e.partition(":")[0] for e in errors] == [
                f"Line {n}" for n in (4, 6, 7, 8, 9, 10)
            ]
            assert "custom_id" in errors[-1]
            assert server.async_engine.num_live == 0

    asyncio.run(body())


def test_lines_wait_for_room_and_at_most_so_many_run() -> None:
    running: list[int] = []

    async def body() -> None:
        options = FakeOptions(max_running=2, max_waiting=1, retry_after_s=0)
        async with fake_server(options) as server:
            lines = [line(str(i), "/v1/completions", {"prompt": "a", "n": 2}) for i in range(6)]

            async def watch() -> None:
                while True:
                    running.append(server.async_engine.num_live)
                    await asyncio.sleep(0)

            watcher = asyncio.create_task(watch())
            found = await answers(server, lines, concurrency=2)
            watcher.cancel()
            assert [a["response"]["status_code"] for a in found] == [200] * 6

    asyncio.run(body())
    assert 0 < max(running) <= 4


def test_lines_wait_while_other_queues_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of media."""
    monkeypatch.setitem(RETRY_AFTER_S, 429, 0)
    refusals = [ApiError(429, "Too many requests wait for their media; try again.")] * 3

    async def body() -> None:
        async with fake_server() as server:

            async def send(endpoint: Endpoint, fields: dict[str, Any]) -> Answer:
                if refusals:
                    raise refusals.pop()
                return await invoke_line(server.state, endpoint, fields, ANONYMOUS)

            lines = [line("a", "/v1/completions", {"prompt": "a"})]
            (found,) = await answers(server, lines, send=send)
            assert found["response"]["status_code"] == 200

    asyncio.run(body())
    assert not refusals


def test_invocations_need_a_known_field() -> None:
    async def body() -> None:
        async with fake_server() as server:
            got = await server.client.post("/invocations", json={"inputs": "a"})
            assert got.status_code == 400 and "`messages`" in got.text
            got = await server.client.post("/invocations", json=EMBEDDING)
            assert got.status_code == 404 and "/v1/completions" in got.text
            got = await server.client.post("/invocations", json={"prompt_embeds": "AAAA"})
            assert got.status_code == 400 and "--enable-prompt-embeds" in got.text
            got = await server.client.post("/invocations", json={**CHAT, "stream": True})
            assert got.text.endswith("data: [DONE]\n\n")

    asyncio.run(body())
