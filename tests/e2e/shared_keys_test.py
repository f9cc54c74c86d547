"""Keys of a server with two API processes: limits hold for both, and a new file reaches both."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
ANSWER = {"prompt": "Hello", "max_tokens": 2, "temperature": 0}


def write(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(content)
    new.chmod(0o600)
    os.replace(new, path)


def statuses(server: ServerProcess, key: str, count: int) -> Counter[int]:
    """Of requests on connections of their own, which the system distributes by their ports."""
    url, headers = f"{server.base_url}/v1/completions", {"X-API-Key": key}
    return Counter(
        httpx.post(url, json=ANSWER, headers=headers, timeout=60).status_code for _ in range(count)
    )


def test_all_processes_share_limits_and_learn_new_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    write(path, "web: {key: k1, requests_per_minute: 10}\nfree: {key: k2}\n")
    options = ("--api-server-count", "2", "--max-model-len", "512", "--api-key-file", str(path))
    with serve(SMOLLM2, tmp_path, options) as server:
        began = time.monotonic()
        found = statuses(server, "k1", 20)
        refilled = (time.monotonic() - began) / 6
        assert 10 <= found[200] <= 11 + refilled and found[200] + found[429] == 20
        write(path, "free: {key: k3}\n")
        deadline = time.monotonic() + 120
        while statuses(server, "k2", 8) != {401: 8}:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert statuses(server, "k3", 8) == {200: 8}
        write(path, "free: {kee: k4}\n")
        while "stays in use" not in server.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert statuses(server, "k3", 8) == {200: 8}
        assert server.log.read_text().count("stays in use") == 1
        assert server.stop() == 0
