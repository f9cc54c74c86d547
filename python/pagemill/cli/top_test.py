"""`pagemill top` without its page, over HTTP and over an operator's socket."""

import asyncio
import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pagemill.cli import main
from pagemill.observe.top.followed import FollowedServer
from pagemill.server.testing.fake_server import fake_server

_TEXT = """\
pagemill:num_requests_running{model_name="tiny",engine="0"} 2
pagemill:generation_tokens_total{model_name="tiny",engine="0"} %d
"""
_AWAY = "http://127.0.0.1:9"
_QUICK = ("--once", "--interval", "0.2")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.server.is_tcp and self.headers["Authorization"] != "Bearer sk-1":  # type: ignore[attr-defined]
            self.send_error(401)
            return
        self.server.reads += 1  # type: ignore[attr-defined]
        data = (_TEXT % (100 * self.server.reads)).encode()  # type: ignore[attr-defined]
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return ""


class _SocketServer(socketserver.UnixStreamServer):
    def get_request(self) -> tuple[Any, Any]:
        request, _ = super().get_request()
        return request, ("", 0)


def _run(server: Any, is_tcp: bool) -> None:
    server.reads, server.is_tcp = 0, is_tcp
    threading.Thread(target=server.serve_forever, daemon=True).start()


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        _run(server, is_tcp=True)
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def path() -> Iterator[str]:
    # A socket's path is short.
    with tempfile.TemporaryDirectory() as folder:
        name = f"{folder}/admin"
        with _SocketServer(name, _Handler) as server:
            _run(server, is_tcp=False)
            yield name
            server.shutdown()


def test_once_prints_a_table(
    url: str, path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_API_KEY", "sk-1")
    assert main(["top", "--url", url, "--url", path, *_QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [url, path]
    assert lines[1].split() == ["state", "ready", "ready"]
    rates = next(line for line in lines if line.startswith("tokens out/s")).split()[2:]
    assert all(0 < float(rate) <= 500 for rate in rates)  # 100 in at least 0.2 s


def test_json_says_what_is_away(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["top", "--url", url, "--client-key", "sk-1", "--url", _AWAY, "--json", *_QUICK]
    assert main(argv) == 1
    ready, away = map(json.loads, capsys.readouterr().out.splitlines())
    assert (ready["state"], ready["now"]["model"], ready["now"]["running"]) == ("ready", "tiny", 2)
    assert (away["state"], away["now"]) == ("away", None)
    assert "no server answers at 127.0.0.1:9" in away["error"]


def test_a_wrong_key_is_a_sentence(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--url", url, "--client-key", "sk-2", *_QUICK]) == 1
    assert "the server refused with HTTP status 401" in capsys.readouterr().out


def test_servers_have_different_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--url", _AWAY, "--url", _AWAY, *_QUICK]) == 2
    assert "named twice" in capsys.readouterr().err


def test_figures_are_those_of_a_server() -> None:
    async def body() -> None:
        async with fake_server() as server:
            text = ""
            followed = FollowedServer("fake", lambda: text, 1000.0)
            text = (await server.client.get("/metrics")).text
            followed.poll()
            payload = {"prompt": "abc", "n": 2, "max_tokens": 3, "ignore_eos": True}
            assert (await server.client.post("/v1/completions", json=payload)).status_code == 200
            text = (await server.client.get("/metrics")).text
            followed.poll()
            now = followed.now
            assert now is not None and (now.model, now.state) == ("fake", "ready")
            assert round(now.generation_tokens * now.seconds) == 6
            assert round(now.requests * now.seconds) == 2
            assert None not in (now.time_to_first_token, now.between_tokens, now.queue_time)
            (tenant,) = now.tenants
            assert round(tenant.generation_tokens * now.seconds) == 6

    asyncio.run(body())


def test_further_names_are_those_of_the_manual() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name in (
        *("kv_cache_usage_perc", "num_prompt_tokens_waiting", "num_preemptions"),
        *("prefix_cache_hits", "prefix_cache_queries", "requests_refused", "process_restarts"),
        "requests_turned_away",
        *("engine_draining", "engine_asleep", "engine_paused", "num_requests_waiting"),
        *("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"),
    ):
        assert f"| `{name}` |" in manual, name
