"""The operator's routes: a socket of their own, with the engine in the server's process and not."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from pagemill.server.records.collector import Collector, values

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve, wait_until_ready

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
PROMPT = "Rivers carry water, sand and stories from the mountains to the sea. " * 8


class Operated(NamedTuple):
    server: ServerProcess
    operator: httpx.Client
    folder: Path
    collector: Collector


@pytest.fixture(scope="module", params=["", "--api-server-count=2"])
def operated(request: pytest.FixtureRequest) -> Iterator[Operated]:
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as name, Collector() as collector:
        folder = Path(name)
        path = folder / "admin"
        options = ["--max-model-len=1024", f"--admin-address={path}", f"--profile-dir={folder}"]
        options.append("--max-pinned-kv-blocks=8")
        options.append(f"--otlp-traces-endpoint={collector.endpoint}")
        with serve(SMOLLM2, folder, [*options, *filter(None, [request.param])]) as running:
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(
                transport=transport, base_url="http://operator", timeout=60
            ) as client:
                # Clients may reach another front end than the one with this socket.
                wait_until_ready(running.process, client, running.log)
                yield Operated(running, client, folder, collector)
            assert running.stop() == 0
        assert not path.exists()


def complete(server: ServerProcess, **fields: Any) -> httpx.Response:
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, **fields}
    return httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)


def tokens(server: ServerProcess) -> tuple[str, int]:
    """The answer, and how many tokens of its prompt were cached."""
    response = complete(server)
    assert response.status_code == 200, response.text
    answer = response.json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def ask(operated: Operated, method: str, path: str, status: int = 200, **kwargs: Any) -> Any:
    response = operated.operator.request(method, path, **kwargs)
    assert response.status_code == status, response.text
    return response.json()


def test_the_socket_is_its_users_alone(operated: Operated) -> None:
    assert stat.S_IMODE(os.stat(operated.folder / "admin").st_mode) == 0o600
    assert ask(operated, "GET", "/ready") == {"status": "ready"}
    info = ask(operated, "GET", "/server_info")
    assert info["phase"] == "ready" and info["settings"]["max_model_len"] == 1024
    assert "api_key" not in info["settings"]
    for path in ("/sleep", "/pause", "/resume"):  # not where clients are
        assert httpx.post(f"{operated.server.base_url}{path}", timeout=60).status_code == 404
    assert operated.operator.post("/v1/completions", json={"prompt": "a"}).status_code == 404


def test_sleep_and_wake(operated: Operated) -> None:
    before, _ = tokens(operated.server)
    assert ask(operated, "POST", "/sleep?level=1") == {"status": "sleeping"}
    assert ask(operated, "GET", "/is_sleeping") == {"is_sleeping": True}
    assert complete(operated.server).status_code == 503
    assert ask(operated, "POST", "/wake_up") == {"status": "awake"}
    assert ask(operated, "GET", "/is_sleeping") == {"is_sleeping": False}
    assert tokens(operated.server) == (before, 0)
    assert ask(operated, "POST", "/sleep", params={"keep_kv": "true"})
    assert ask(operated, "POST", "/wake_up")
    assert tokens(operated.server)[1] > 0
    ask(operated, "POST", "/sleep?level=0", status=400)
    ask(operated, "POST", "/wake_up?tags=weights", status=400)


def test_a_pause_that_keeps_requests(operated: Operated) -> None:
    assert ask(operated, "POST", "/pause?mode=keep") == {"status": "paused"}
    assert ask(operated, "GET", "/is_paused") == {"is_paused": True}
    answers: list[httpx.Response] = []
    client = threading.Thread(target=lambda: answers.append(complete(operated.server)))
    client.start()
    client.join(0.3)
    assert client.is_alive()
    assert ask(operated, "POST", "/resume") == {"status": "resumed"}
    client.join(60)
    assert answers[0].status_code == 200
    assert ask(operated, "GET", "/is_paused") == {"is_paused": False}


def test_a_pause_that_aborts_requests(operated: Operated) -> None:
    answers: list[httpx.Response] = []
    long = {"max_tokens": 800, "ignore_eos": True}
    client = threading.Thread(target=lambda: answers.append(complete(operated.server, **long)))
    client.start()
    deadline = time.monotonic() + 60
    while not operated.server.metric("num_requests_running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert ask(operated, "POST", "/pause") == {"status": "paused"}
    client.join(60)
    assert not client.is_alive()
    assert ask(operated, "POST", "/resume")
    assert tokens(operated.server)[1] == 0  # the cache was cleared


def test_the_prefix_cache_is_reset(operated: Operated) -> None:
    tokens(operated.server)
    assert tokens(operated.server)[1] > 0
    assert ask(operated, "POST", "/reset_prefix_cache") == {"success": True}
    assert ask(operated, "POST", "/reset_mm_cache") == {"success": True}
    assert ask(operated, "POST", "/reset_encoder_cache") == {"success": True}
    assert tokens(operated.server)[1] == 0


def test_weights_are_updated(operated: Operated) -> None:
    before, _ = tokens(operated.server)
    assert ask(operated, "POST", "/update_weights", json={"path": SMOLLM2}) == {"status": "updated"}
    assert tokens(operated.server) == (before, 0)
    error = ask(operated, "POST", "/update_weights", status=400, json={"path": "/nowhere"})["error"]
    assert error["param"] == "path"
    assert tokens(operated.server)[0] == before


def test_a_session_is_saved_and_restored(operated: Operated) -> None:
    tokens(operated.server)
    session = {"path": str(operated.folder / "session")}
    saved = ask(operated, "POST", "/save_session", json={**session, "prompt": PROMPT})
    assert saved["num_tokens"] >= 64
    ask(operated, "POST", "/reset_prefix_cache")
    restored = ask(operated, "POST", "/restore_session", json=session)
    assert restored["num_tokens"] == saved["num_tokens"] <= len(restored["token_ids"])
    assert tokens(operated.server)[1] > 0
    ask(operated, "POST", "/restore_session", status=404, json={"path": "/nowhere"})


def test_a_prefix_is_pinned(operated: Operated) -> None:
    ask(operated, "POST", "/reset_prefix_cache")
    ask(operated, "POST", "/pin_prefix", status=404, json={"prompt": PROMPT})  # not run yet
    tokens(operated.server)
    pin = ask(operated, "POST", "/pin_prefix", json={"prompt": PROMPT})
    assert pin["num_tokens"] >= 64
    ask(operated, "POST", "/pin_prefix", status=400, json={"prompt": ""})
    unpin = {"pin_id": pin["pin_id"]}
    assert ask(operated, "POST", "/unpin_prefix", json=unpin) == {"success": True}
    assert ask(operated, "POST", "/unpin_prefix", json=unpin) == {"success": False}


def test_a_profile_has_steps_and_ops(operated: Operated) -> None:
    ask(operated, "POST", "/stop_profile", status=409)
    ask(operated, "POST", "/start_profile?profile_prefix=../a", status=400)
    path = Path(ask(operated, "POST", "/start_profile?profile_prefix=short")["path"])
    assert path.parent == operated.folder.absolute() and path.stat().st_size == 0
    ask(operated, "POST", "/start_profile", status=409)
    ask(operated, "POST", "/reset_prefix_cache")
    tokens(operated.server)
    state = ask(operated, "POST", "/stop_profile")
    assert (state["path"], state["complete"]) == (str(path), True) and state["num_steps"] >= 8
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) == state["num_events"]
    steps = [event for event in events if event["name"] == "execute"]
    assert len(steps) == state["num_steps"]
    assert steps[0]["args"]["requests"] == 1 and steps[0]["args"]["tokens"] > 8
    ops = [event for event in events if event["tid"] == 2]
    assert {"linear", "paged_attention"} <= {op["name"] for op in ops}
    first, end = ops[0], steps[0]["ts"] + steps[0]["dur"]
    assert steps[0]["ts"] <= first["ts"] and first["ts"] + first["dur"] <= end
    assert first["args"]["kernel"] and first["args"]["layer"] == "layer.0"

    ask(operated, "POST", "/start_profile?max_iterations=2")
    tokens(operated.server)
    state = ask(operated, "POST", "/stop_profile")
    assert not state["complete"] and state["path"].endswith("/profile-1.json")


def test_requests_are_spans(operated: Operated) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    body = {"prompt": PROMPT, "max_tokens": 3, "ignore_eos": True}
    got = httpx.post(
        f"{operated.server.base_url}/v1/completions", json=body, headers=headers, timeout=60
    )
    assert got.status_code == 200
    spans = operated.collector.wait_for(5, trace)
    assert [span.name for span in spans] == [
        *("prepare", "queue", "prefill", "decode", "POST /v1/completions")
    ]
    assert values(spans[-1].attributes)["gen_ai.usage.output_tokens"] == 3
