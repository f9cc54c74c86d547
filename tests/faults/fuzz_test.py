"""2,000 invalid requests to the real server: each gets a 4xx with an explanation, or an answer,
never a 500, and the engine answers afterwards."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import (
    MINILM_REASON,
    SMOLLM2,
    SMOLLM2_REASON,
    ServerProcess,
    minilm_directory,
    serve,
)
from tests.faults.garbage import Shot, shots

REQUESTS = 2000
CONCURRENCY = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if not SMOLLM2:
        pytest.skip(SMOLLM2_REASON)
    # A short context bounds what a request without a limit can generate.
    options = ("--max-model-len", "128", "--max-body-bytes", "1MiB")
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), options) as running:
        yield running


def check(shot: Shot, response: httpx.Response) -> None:
    status = response.status_code
    context = f"{shot.path} {shot.body[:300]!r} -> {status} {response.text[:300]}"
    if status == 200:
        assert not shot.must_fail, context
        return
    assert 400 <= status < 500, context
    message = sentence(shot.path, status, response.json())
    assert message[-1] == "." and len(message.split()) >= 3, context


def sentence(path: str, status: int, body: Any) -> str:
    """What the body of an error says; it has the form of the API that `path` belongs to."""
    if path == "/v2/chat":
        assert set(body) == {"message"}, body
        return body["message"]
    error = body["error"]
    if path == "/v1/messages":
        assert body["type"] == "error" and {"type", "message"} <= set(error), body
        return error["message"]
    assert set(error) == {"message", "type", "param", "code"}, body
    assert error["code"] == status, body
    assert error["param"] is None or isinstance(error["param"], str), body
    return error["message"]


async def fire(server: ServerProcess, ammunition: list[Shot]) -> collections.Counter[int]:
    statuses: collections.Counter[int] = collections.Counter()
    queue = iter(ammunition)
    async with httpx.AsyncClient(base_url=server.base_url, timeout=120) as client:

        async def worker() -> None:
            for shot in queue:
                headers = {"content-type": shot.content_type}
                response = await client.post(shot.path, content=shot.body, headers=headers)
                check(shot, response)
                statuses[response.status_code] += 1

        await asyncio.gather(*[worker() for _ in range(CONCURRENCY)])
    return statuses


def test_garbage(server: ServerProcess) -> None:
    answer = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    url = f"{server.base_url}/v1/completions"
    before = httpx.post(url, json=answer, timeout=60).json()["choices"][0]["text"]
    statuses = asyncio.run(fire(server, shots(20261121, REQUESTS)))
    print(dict(statuses))
    assert sum(statuses.values()) == REQUESTS
    assert statuses[400] > REQUESTS / 3  # the generator produces enough invalid requests
    assert statuses[200] > 0
    server.wait_until_idle()
    assert httpx.post(url, json=answer, timeout=60).json()["choices"][0]["text"] == before
    assert server.process.poll() is None
    assert "Traceback" not in server.log.read_text()


def test_garbage_for_an_embedding_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not minilm_directory():
        pytest.skip(MINILM_REASON)
    with serve(minilm_directory(), tmp_path_factory.mktemp("embedder")) as running:
        ammunition = [shot for shot in shots(7, 1800) if shot.path == "/v1/embeddings"]
        statuses = asyncio.run(fire(running, ammunition))
        print(dict(statuses))
        assert statuses[400] > 100 and statuses[200] > 0
        got = httpx.post(f"{running.base_url}/v1/embeddings", json={"input": "x"}, timeout=60)
        assert got.status_code == 200
        running.wait_until_idle()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"NONSENSE\r\n\r\n",
    ],
)
def test_what_is_not_even_http(server: ServerProcess, head: bytes) -> None:
    async def send() -> bytes:
        host, _, port = server.base_url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head)
        try:
            writer.write_eof()
            return await asyncio.wait_for(reader.read(4096), 60)
        except TimeoutError:
            raise
        except OSError:  # the server has closed the connection before it read everything
            return b""
        finally:
            writer.close()

    reply = asyncio.run(send())
    assert b" 500 " not in reply[:50]
    assert httpx.get(f"{server.base_url}/ready", timeout=60).status_code == 200
