"""`pagemill serve-models` with real models: they are loaded when they are named, one makes room for
another, and none outlives the server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import NotFoundError, OpenAI
from pagemill.config.memory import available_memory_bytes

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve_models

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)


def entry(**others: Any) -> dict[str, Any]:
    return {"model": SMOLLM2, "options": {"max-model-len": 1024, "threads": 1}} | others


def statuses(server: ServerProcess) -> dict[str, str]:
    cards = httpx.get(f"{server.base_url}/v1/models", timeout=60).json()["data"]
    return {card["id"]: card["status"]["value"] for card in cards}


def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(server: ServerProcess) -> list[int]:
    """The processes of its models."""
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_models_are_loaded_when_they_are_named(tmp_path: Path) -> None:
    models = {"a": entry(aliases=["default"]), "b": entry()}
    with serve_models(models, tmp_path, ("--max-models", "1")) as server:
        client = OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)
        until(lambda: len(children(server)) == 1)  # the spare process, which a model takes
        (spare,) = children(server)
        question: Any = [{"role": "user", "content": "What is the capital of France?"}]
        answers: list[str | None] = []
        for name, own in (("default", "a"), ("b", "b"), ("b", "b")):
            got = client.chat.completions.create(
                model=name, messages=question, max_tokens=8, temperature=0
            )
            answers.append(got.choices[0].message.content)
            assert got.model == own and statuses(server)[own] == "loaded"
            until(lambda: len(children(server)) == 2)  # with the next spare process
            assert (spare in children(server)) == (own == "a")
        assert answers[0] and len(set(answers)) == 1
        stream = client.completions.create(model="b", prompt="One, two,", max_tokens=9, stream=True)
        assert sum(1 for _ in stream) >= 9
        with pytest.raises(NotFoundError, match="There are: a, default, b"):
            client.completions.create(model="c", prompt="x")
        cards = {card.id: card for card in client.models.list()}
        assert cards["a"].model_dump()["max_model_len"] == 1024  # as its process said
        assert server.metric("models_start_seconds_count", model="b") == 1
        own = httpx.get(f"{server.base_url}/metrics", params={"model": "b"}, timeout=60).text
        assert "pagemill:num_requests_running{" in own
        processes = children(server)
        os.kill(server.process.pid, signal.SIGKILL)
        until(lambda: not any(is_alive(process) for process in processes))


def test_memory_is_shared(tmp_path: Path) -> None:
    # Each takes more than half of what they may use together, also if a fifth more or less memory
    # is available when the server starts; pages take memory when they are used.
    share = 0.3
    kv_bytes = int(0.7 * share * available_memory_bytes())
    options = {"max-model-len": 1024, "threads": 1, "kv-cache-memory-bytes": kv_bytes}
    models = {"a": entry(options=options), "b": entry(options=options)}
    with serve_models(models, tmp_path, ("--memory-utilization", str(share))) as server:
        for name in ("a", "b", "a"):
            body = {"model": name, "prompt": "x", "max_tokens": 2}
            got = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
            assert got.status_code == 200, got.text
            assert [model for model, state in statuses(server).items() if state == "loaded"] == [
                name
            ]
            assert server.metric("models_reserved_bytes", model=name) > kv_bytes
        assert server.metric("models_failures_total", model="b") == 0


def test_a_drain_ends_models_after_their_requests(tmp_path: Path) -> None:
    with serve_models({"a": entry(keep=True)}, tmp_path) as server:  # ready: it is loaded
        (process,) = children(server)
        body = {"model": "a", "prompt": "x", "max_tokens": 64, "ignore_eos": True, "stream": True}
        url = f"{server.base_url}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            assert list(lines)[-2] == "data: [DONE]"  # a drain lets it end
        assert server.process.wait(60) == 0 and not is_alive(process)


def test_keys_are_checked_by_both(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("web: {key: sk-web, models: [a], requests_per_minute: 1}\n")
    keys.chmod(0o600)
    models = {"a": entry(keep=True), "b": entry()}
    options = ("--api-key-file", str(keys), "--no-spare-process")
    with serve_models(models, tmp_path, options) as server:

        def status(model: str, key: str = "sk-web") -> int:
            body = {"model": model, "prompt": "x", "max_tokens": 1}
            head = {"authorization": f"Bearer {key}"}
            url = f"{server.base_url}/v1/completions"
            return httpx.post(url, json=body, headers=head, timeout=60).status_code

        assert [status("a", "sk-other"), status("b"), status("a")] == [401, 404, 200]
        assert status("a") == 429  # the model's process counts
        assert len(children(server)) == 1
