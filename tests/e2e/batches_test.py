"""Batches with OpenAI's client: two API processes, a kill, and a server that continues."""

from __future__ import annotations

import json
import time
from pathlib import Path

import openai
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
COUNT = 60
ENDED = ("completed", "failed", "expired", "cancelled")


def requests() -> bytes:
    body = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40}
    rows = [
        {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for i in range(COUNT)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def client_of(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=5)


def test_a_killed_server_continues(tmp_path: Path) -> None:
    options = [
        f"--batch-dir={tmp_path / 'batches'}",
        *("--batch-concurrency=2", "--api-server-count=2", "--max-model-len=256"),
    ]
    with serve(SMOLLM2, tmp_path, options) as server:
        client = client_of(server)
        file = client.files.create(file=("requests.jsonl", requests()), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"job": "test"},
        )
        while True:
            batch = client.batches.retrieve(batch.id)
            assert batch.status not in ENDED
            if batch.request_counts and batch.request_counts.completed:
                break
            time.sleep(0.05)
        server.process.kill()
        server.process.wait()
    before = batch.request_counts.completed
    with serve(SMOLLM2, tmp_path, options) as server:
        client = client_of(server)
        while (batch := client.batches.retrieve(batch.id)).status not in ENDED:
            time.sleep(0.1)
        assert batch.status == "completed" and batch.metadata == {"job": "test"}
        counts = batch.request_counts
        assert counts is not None and batch.output_file_id is not None
        assert 0 < before < counts.total == counts.completed == COUNT
        lines = client.files.content(batch.output_file_id).text.splitlines()
        answers = {line["custom_id"]: line["response"] for line in map(json.loads, lines)}
        assert len(answers) == len(lines) == COUNT
        assert all(each["body"]["usage"]["completion_tokens"] for each in answers.values())
        assert [each.id for each in client.batches.list(limit=5)] == [batch.id]
        assert {each.purpose for each in client.files.list()} == {"batch", "batch_output"}
        client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file.id)
        assert server.stop() == 0
