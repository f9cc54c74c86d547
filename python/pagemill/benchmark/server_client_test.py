"""Tests of what talks to a server: server_client, text_source, load_generator and bench serve."""

import asyncio
import json
import random
import statistics
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pagemill.benchmark.load_generator import Load, RequestTimes, generate_load
from pagemill.benchmark.percentiles import percentile, summary
from pagemill.benchmark.prompts import PromptConfig, Request
from pagemill.benchmark.routes import SentFields
from pagemill.benchmark.server_client import ClientError, ServerAddress, ServerClient
from pagemill.benchmark.serving import LoadConfig, summarize
from pagemill.cli.text_source import ClientConfig, RemoteText
from pagemill.config import ConfigError, SamplingConfig


class Handler(BaseHTTPRequestHandler):
    """A little of an OpenAI server. What to do is on `server.script`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, {"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script: dict[str, Any] = self.server.script  # type: ignore[attr-defined]
        script["seen"].append((self.path, dict(self.headers), body))
        if "refuse" in script:
            self._answer(script["refuse"], {"error": {"message": "Too many at once."}})
            return
        if "answer" in script:
            self._answer(200, script["answer"])
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events: list[Any] = script["events"](body)
        name = b"event: x\n" if "named" in script else b""
        data = b"".join(
            name + b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n"
            for e in events
        )
        step = script.get("portion", len(data))
        for at in range(0, len(data), step):
            part = data[at : at + step]
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _completion(body: dict[str, Any]) -> list[Any]:
    tokens: list[Any] = [{"choices": [{"text": "x"}]}] * body["max_tokens"]
    usage = {"choices": [], "usage": {"completion_tokens": body["max_tokens"]}}
    return [*tokens, usage, b"[DONE]"]


def _chat(body: dict[str, Any]) -> list[Any]:
    said = body["messages"][-1]["content"]
    return [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        *[{"choices": [{"delta": {"content": char}}]} for char in said],
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        b"[DONE]",
    ]


@pytest.fixture(name="server")
def _server() -> Iterator[tuple[str, dict[str, Any]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script: dict[str, Any] = {"seen": [], "events": _completion}
    server.script = script  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", script
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("http://a:1", ServerAddress("a", 1, False, "")),
        ("a:1/v1/", ServerAddress("a", 1, False, "")),
        ("https://a.example", ServerAddress("a.example", 443, True, "")),
        ("http://a/proxy/v1", ServerAddress("a", 80, False, "/proxy")),
        ("[::1]:8000", ServerAddress("::1", 8000, False, "")),
    ],
)
def test_addresses(url: str, want: ServerAddress) -> None:
    assert ServerAddress.parse(url) == want


@pytest.mark.parametrize("url", ["", "http://", "ftp://a", "http://a:x", "http://a:99999"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(ClientError):
        ServerAddress.parse(url)


@pytest.mark.parametrize("portion", [10**6, 7, 1])
def test_chat_is_streamed(server: tuple[str, dict[str, Any]], portion: int) -> None:
    url, script = server
    script |= {"events": _chat, "portion": portion}
    source = RemoteText.connect(ClientConfig(url=url, client_key="k"))
    sampling = SamplingConfig(temperature=0.0, top_k=0, max_tokens=5, stop=("a", "b"))
    messages = [{"role": "user", "content": "schön"}]
    assert "".join(source.chat(messages, sampling)) == "schön"
    path, headers, body = script["seen"][0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer k"
    # Zeros are values; what was not said is not sent.
    assert body == {
        "model": "tiny",
        "messages": messages,
        "temperature": 0.0,
        "top_k": 0,
        "max_tokens": 5,
        "stop": ["a", "b"],
        "stream": True,
    }


def test_refusals_and_breaks(server: tuple[str, dict[str, Any]]) -> None:
    url, script = server
    source = RemoteText(ServerClient(url), "tiny")
    script["events"] = lambda body: [{"choices": [{"text": "x"}]}]  # never says [DONE]
    with pytest.raises(ClientError, match="broke off"):
        list(source.complete("a", SamplingConfig()))
    script["events"] = lambda body: [{"error": {"message": "It failed."}}]
    with pytest.raises(ClientError, match="It failed"):
        list(source.complete("a", SamplingConfig()))
    script["refuse"] = 429
    with pytest.raises(ClientError, match=r"\(429\): Too many at once"):
        list(source.complete("a", SamplingConfig()))


def _fields(temperature: float | None = None, ignore_eos: bool = True) -> SentFields:
    return SentFields("tiny", temperature, ignore_eos)


def _load(url: str, **change: Any) -> list[RequestTimes]:
    values: dict[str, Any] = {
        "requests": [Request([1, 2, 3], 4)] * 12,
        "fields": _fields(),
        "request_rate": float("inf"),
        "max_concurrency": 3,
        "seed": 0,
    }
    return asyncio.run(generate_load(ServerClient(url), Load(**(values | change))))


@pytest.mark.parametrize("portion", [10**6, 5])
def test_load(server: tuple[str, dict[str, Any]], portion: int) -> None:
    url, script = server
    script["portion"] = portion
    times = _load(url)
    assert len(times) == len(script["seen"]) == 12
    for one in times:
        assert one.ok, one.error
        assert one.output_tokens == 4
        assert len(one.gaps) == 3
        assert one.sent <= one.first <= one.last
    assert script["seen"][0][2]["prompt"] == [1, 2, 3]
    assert script["seen"][0][2]["ignore_eos"] is True


def _answered_chat(body: dict[str, Any]) -> list[Any]:
    *events, done = _chat(body)
    usage = {"completion_tokens": len(events) - 2, "prompt_tokens": 7}
    return [*events, {"choices": [], "usage": usage}, done]


def test_chats_are_sent_and_end_where_the_model_ends_them(
    server: tuple[str, dict[str, Any]],
) -> None:
    url, script = server
    script["events"] = _answered_chat
    chats = {"fields": _fields(ignore_eos=False), "endpoint": "/v1/chat/completions"}
    (times,) = _load(url, requests=[Request("abc", 100)], **chats)
    assert times.ok, times.error
    assert (times.input_tokens, times.output_tokens) == (7, 3)
    assert len(times.gaps) == 2  # neither the role nor the end is a token
    path, _, body = script["seen"][0]
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "abc"}]
    assert body["max_tokens"] == 100
    assert "ignore_eos" not in body and "prompt" not in body
    prompts = PromptConfig(dataset="prompts.jsonl")
    config = LoadConfig(prompts=prompts, endpoint="/v1/chat/completions")
    report = summarize(config, [times])
    assert (report["input_tokens"], report["output_tokens"]) == (7, 3)
    assert report["endpoint"] == "/v1/chat/completions"
    script["events"] = lambda body: [_chat(body)[0], b"[DONE]"]
    (times,) = _load(url, requests=[Request("abc", 100)], **chats)
    assert times.error == "an empty answer"


def _response(body: dict[str, Any]) -> list[Any]:
    usage = {"input_tokens": 5, "output_tokens": body["max_output_tokens"]}
    deltas = [{"type": "response.output_text.delta", "delta": "x"}] * body["max_output_tokens"]
    return [
        {"type": "response.created", "response": {"usage": None}},
        *deltas,
        {"type": "response.completed", "response": {"usage": usage}},
    ]


def test_responses_are_sent(server: tuple[str, dict[str, Any]]) -> None:
    url, script = server
    script |= {"events": _response, "named": True}
    (times,) = _load(url, requests=[Request("abc", 3)], endpoint="/v1/responses")
    assert times.ok, times.error
    assert (times.input_tokens, times.output_tokens, len(times.gaps)) == (5, 3, 2)
    path, _, body = script["seen"][0]
    assert path == "/v1/responses"
    assert body["input"] == "abc" and body["store"] is False and body["ignore_eos"] is True
    script["events"] = lambda body: _response(body)[:-1]
    (times,) = _load(url, requests=[Request("abc", 3)], endpoint="/v1/responses")
    assert times.error == "the server broke off its answer"


def test_embeddings_are_sent(server: tuple[str, dict[str, Any]]) -> None:
    url, script = server
    script["answer"] = {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3}}
    (times,) = _load(url, requests=[Request([1, 2, 3], 64)], endpoint="/v1/embeddings")
    assert times.ok, times.error
    assert script["seen"][0][2] == {"model": "tiny", "input": [1, 2, 3]}
    report = summarize(LoadConfig(endpoint="/v1/embeddings"), [times])
    assert (report["input_tokens"], report["output_tokens"]) == (3, 0)
    assert report["ttft_ms"]["p50"] is None and report["e2e_ms"]["p50"] > 0
    assert report["input_tokens_per_s"] == pytest.approx(3 * report["requests_per_s"])


def test_tokens_are_counted_by_the_server(server: tuple[str, dict[str, Any]]) -> None:
    url, script = server
    script["answer"] = {"count": 7}
    assert ServerClient(url).count_tokens("a b", "tiny") == 7
    path, _, body = script["seen"][0]
    assert path == "/tokenize"
    assert body == {"model": "tiny", "prompt": "a b", "add_special_tokens": False}
    script["seen"].clear()
    text = "word " * 1500 + "x" * 9000
    assert ServerClient(url).count_tokens(text, None) == 7 * 5
    sent = [body["prompt"] for _, _, body in script["seen"]]
    assert "".join(sent) == text and sent[1].startswith(" word")
    script["answer"] = {}
    with pytest.raises(ClientError, match="no `count`"):
        ServerClient(url).count_tokens("a", None)


@pytest.mark.parametrize("temperature", [None, 0.0, 0.7])
def test_the_temperature_is_the_servers_unless_asked(
    server: tuple[str, dict[str, Any]], temperature: float | None
) -> None:
    url, script = server
    _load(url, requests=[Request([1], 4)], fields=_fields(temperature))
    sent = script["seen"][0][2]
    assert ("temperature" in sent) == (temperature is not None)
    assert sent.get("temperature") == temperature
    config = LoadConfig(temperature=temperature)
    report = summarize(config, [])
    assert report["temperature"] == ("server's" if temperature is None else temperature)


def test_no_more_than_the_allowed_are_open(server: tuple[str, dict[str, Any]]) -> None:
    url, script = server
    lock = threading.Lock()
    state = {"open": 0, "most": 0}

    def slow(body: dict[str, Any]) -> list[Any]:
        with lock:
            state["open"] += 1
            state["most"] = max(state["most"], state["open"])
        time.sleep(0.02)
        with lock:
            state["open"] -= 1
        return _completion(body)

    script["events"] = slow
    assert all(one.ok for one in _load(url, max_concurrency=3))
    assert 2 <= state["most"] <= 3


def test_the_rate_is_kept(server: tuple[str, dict[str, Any]]) -> None:
    times = _load(server[0], request_rate=100.0, requests=[Request([1], 4)] * 40)
    span = times[-1].sent - times[0].sent
    # 39 exponential gaps of 10 ms: 390 ms, with a standard deviation of 62; busy machines add.
    assert 0.2 < span < 5


@pytest.mark.parametrize(("burstiness", "deviation"), [(1e5, 0.0), (1.0, 1.0), (0.25, 2.0)])
def test_gaps_are_as_even_as_wanted(burstiness: float, deviation: float) -> None:
    load = Load([], _fields(), 100.0, 3, seed=0, burstiness=burstiness)
    rng = random.Random(0)
    gaps = [load.gap(0, rng) for _ in range(20_000)]
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.05)
    # The deviation of a gamma distribution, in means, is one over the root of its shape.
    assert statistics.stdev(gaps) / 0.01 == pytest.approx(deviation, rel=0.05, abs=0.01)


def test_goodput_counts_what_meets_all_goals() -> None:
    def times(first: float, last: float, error: str = "") -> RequestTimes:
        return RequestTimes(sent=0.0, first=first, last=last, output_tokens=11, error=error)

    runs = [times(0.1, 0.6), times(0.3, 0.6), times(0.1, 1.2), times(0.1, 0.6, "failed")]
    config = LoadConfig(goodput=("ttft:200", "tpot:60", "e2e:1500"))
    report = summarize(config, runs)
    assert report["goodput_requests"] == 1
    assert report["goodput_per_s"] == pytest.approx(1 / 1.2)
    assert "goodput_requests" not in summarize(LoadConfig(), runs)
    for bad in ("ttft", "itl:5", "e2e:0", "e2e:x", "e2e:nan"):
        with pytest.raises(ConfigError, match="--goodput: .*as ttft:500"):
            LoadConfig(goodput=(bad,))
    with pytest.raises(ConfigError, match="ttft is given twice"):
        LoadConfig(goodput=("ttft:1", "ttft:2"))


def test_failures_are_counted(server: tuple[str, dict[str, Any]]) -> None:
    url, script = server
    script["events"] = lambda body: [*_completion({"max_tokens": 2})]
    assert {one.error for one in _load(url)} == {"2 tokens instead of 4"}
    script["events"] = lambda body: [{"choices": [{"text": "x"}]}]
    assert {one.error for one in _load(url)} == {"the server broke off its answer"}
    script["refuse"] = 503
    times = _load(url)
    assert all("503" in one.error for one in times)
    report = summarize(LoadConfig(), times)
    assert report["failed"] == 12
    assert report["requests_per_s"] is None


def test_the_report() -> None:
    times = [
        RequestTimes(sent=float(i), first=i + 0.1, last=i + 0.5, gaps=[0.2, 0.2], output_tokens=3)
        for i in range(10)
    ]
    report = summarize(LoadConfig(), times)
    assert report["seconds"] == pytest.approx(9.5)
    assert report["requests_per_s"] == pytest.approx(10 / 9.5)
    assert report["ttft_ms"]["p99"] == pytest.approx(100)
    assert report["itl_ms"]["mean"] == pytest.approx(200)
    assert report["tpot_ms"]["p50"] == pytest.approx(200)
    assert report["e2e_ms"]["max"] == pytest.approx(500)


def test_percentiles() -> None:
    assert percentile([4, 1, 3, 2], 50) == 2.5
    assert percentile([7], 99) == 7
    assert percentile(range(101), 95) == 95
    assert summary([])["p50"] is None
    assert summary([0.001, 0.003])["mean"] == pytest.approx(2)
