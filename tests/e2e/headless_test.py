"""`pagemill serve --headless`: a server with engines in processes of their own commands, as on
several machines, of a tiny model."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.engine.llm import LLM
from pagemill.engine.reserved_port import reserved_port
from pagemill.engine.sampling import SamplingParams

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.parity.llama_checkpoint import write_llama

GREEDY = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
PROMPTS = [[8, 6, 7, 200, number] for number in range(16)]
LONG = 400  # tokens
NUM_ENGINES = 3
JOINED = ["ready"] * NUM_ENGINES


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    write_llama(path, seed=1)
    return path


@pytest.fixture(scope="module")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other")
    write_llama(path, seed=2)
    return path


def _expected(model: Path) -> list[list[int]]:
    """The tokens of `PROMPTS` by one engine without a server."""
    with LLM(str(model), skip_tokenizer_init=True) as llm:
        outputs = llm.generate(PROMPTS, SamplingParams(**GREEDY))
    return [output.choices[0].token_ids for output in outputs]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Headless:
    """The command on the other machine: engines 1 and 2."""

    def __init__(self, model: Path, folder: Path, options: tuple[str, ...]) -> None:
        self._model = model
        self.log = folder / "headless.log"
        self._options = options
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pagemill.cli", "serve", str(self._model)]
        command += ["--served-model-name", NAME, *self._options, "--headless"]
        with self.log.open("a") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def restart(self) -> None:
        """After it has ended."""
        self.process = self._start()

    def signal_engines(self, number: signal.Signals) -> None:
        """To the processes of its engines."""
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), number)

    def kill(self) -> None:
        """At once, with its engines."""
        with contextlib.suppress(OSError):  # it has ended
            self.signal_engines(signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.terminate()
        return self.process.wait(120)

    def wait_for_line(self, words: str) -> None:
        _until(lambda: words in self.log.read_text() or self.process.poll() is not None)
        assert words in self.log.read_text(), self.log.read_text()


class Server(ServerProcess):
    """The server with HTTP, and its operator's socket."""

    def operate(self, route: str, **fields: Any) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.log.parent / "admin"))
        with httpx.Client(transport=transport, base_url="http://operator", timeout=60) as client:
            return client.post(route, json=fields) if fields else client.post(route)

    def ask(self, prompt: list[int], engine: int | None = None, **fields: Any) -> httpx.Response:
        body = {"token_ids": prompt, "sampling_params": {**GREEDY, **fields}}
        headers = {} if engine is None else {"X-data-parallel-rank": str(engine)}
        url = f"{self.base_url}/inference/v1/generate"
        return httpx.post(url, json=body, headers=headers, timeout=60)

    def tokens(self, prompt: list[int], engine: int | None = None) -> list[int]:
        response = self.ask(prompt, engine)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["token_ids"]

    def engines(self) -> list[str]:
        return httpx.get(f"{self.base_url}/health", timeout=60).json()["engines"]


def _common(port: int, *options: str) -> tuple[str, ...]:
    """What both commands have."""
    size = ("--data-parallel-size", str(NUM_ENGINES), "--data-parallel-rpc-port", str(port))
    return (*size, "--skip-tokenizer-init", "--threads", "1", *options)


@contextlib.contextmanager
def _headless(model: Path, folder: Path, options: tuple[str, ...]) -> Iterator[Headless]:
    headless = Headless(model, folder, (*options, "--data-parallel-start-rank", "1"))
    try:
        yield headless
    finally:
        if headless.process.poll() is None:
            headless.kill()


@contextlib.contextmanager
def _server(
    model: Path, folder: Path, options: tuple[str, ...], local: int = 1
) -> Iterator[Server]:
    own = ("--data-parallel-size-local", str(local), "--admin-address", str(folder / "admin"))
    with serve(str(model), folder, (*options, *own)) as made:
        yield Server(made.process, made.base_url, made.log, made.seconds_to_ready)


@pytest.fixture(name="port")
def _port() -> Iterator[int]:
    """Where the machines meet."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def both(
    model: Path, port: int, request: pytest.FixtureRequest
) -> Iterator[tuple[Server, Headless]]:
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = _common(port, *getattr(request, "param", ()))
        with (
            _headless(model, folder, options) as headless,
            _server(model, folder, options) as server,
        ):
            _until(lambda: server.engines() == JOINED)
            yield server, headless


def _ask_beside(server: Server, engine: int) -> tuple[threading.Thread, list[httpx.Response]]:
    """Begins a long request of an engine; its thread ends with the response in the list."""
    responses: list[httpx.Response] = []

    def ask() -> None:
        responses.append(server.ask(PROMPTS[0], engine, max_tokens=LONG))

    thread = threading.Thread(target=ask)
    thread.start()
    load = f"{server.base_url}/load"
    _until(lambda: httpx.get(load, timeout=60).json()["server_load"] == 1)
    for _ in range(5):  # turns of the server's loop, after which the engine's socket has it
        httpx.get(load, timeout=60)
    return thread, responses


@pytest.mark.parametrize("both", [(), ("--api-server-count", "2")], indirect=True)
def test_tokens_are_those_of_one_engine_and_load_spreads(
    both: tuple[Server, Headless], model: Path
) -> None:
    server, headless = both
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        found[number] = server.tokens(PROMPTS[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = _expected(model)
    assert [found[number] for number in range(len(PROMPTS))] == expected
    assert [server.tokens(PROMPTS[0], engine) for engine in range(3)] == [expected[0]] * 3
    total = (len(PROMPTS) + 3) * GREEDY["max_tokens"]

    def counts() -> list[float]:
        return [server.metric("generation_tokens_total", engine=str(i)) for i in range(3)]

    _until(lambda: sum(counts()) == total)
    assert min(counts()) > GREEDY["max_tokens"]
    assert server.stop() == 0
    headless.wait_for_line("waits for the server, which does not answer")
    assert headless.stop() == 0


def test_killed_engines_lose_only_their_requests_and_come_back(
    both: tuple[Server, Headless], other_weights: Path
) -> None:
    server, headless = both
    old = server.tokens(PROMPTS[0])
    response = server.operate("/update_weights", path=str(other_weights))
    assert response.json() == {"status": "updated"}, response.text
    new = server.tokens(PROMPTS[0], 2)
    assert new != old
    headless.signal_engines(signal.SIGSTOP)
    lost, answers = _ask_beside(server, 1)
    headless.kill()
    lost.join()
    assert answers[0].status_code == 503
    _until(lambda: server.engines() == ["ready", "restarting", "restarting"])
    assert [server.tokens(prompt) for prompt in PROMPTS[:1] * 3] == [new] * 3
    assert server.ask(PROMPTS[0], 1).status_code == 503
    headless.restart()
    _until(lambda: server.engines() == JOINED)
    assert [server.tokens(PROMPTS[0], engine) for engine in range(3)] == [new] * 3
    assert server.metric("process_restarts_total", process="engine") == 2


def test_a_machine_that_is_stopped_finishes_its_requests(both: tuple[Server, Headless]) -> None:
    server, headless = both
    headless.signal_engines(signal.SIGSTOP)
    thread, answers = _ask_beside(server, 2)
    headless.process.terminate()
    assert not answers
    headless.signal_engines(signal.SIGCONT)
    assert headless.process.wait(120) == 0
    thread.join()
    (answer,) = answers
    assert len(answer.json()["choices"][0]["token_ids"]) == LONG
    _until(lambda: server.engines() == ["ready", "restarting", "restarting"])
    assert server.ask(PROMPTS[0]).status_code == 200


def test_the_operator_reaches_all_engines(both: tuple[Server, Headless], tmp_path: Path) -> None:
    server, _ = both
    assert server.operate("/sleep").json() == {"status": "sleeping"}
    assert [server.ask(PROMPTS[0], engine).status_code for engine in range(3)] == [503] * 3
    assert server.operate("/wake_up").json() == {"status": "awake"}
    assert [server.ask(PROMPTS[0], engine).status_code for engine in range(3)] == [200] * 3
    assert server.operate("/reset_prefix_cache").json() == {"success": True}
    path = str(tmp_path / "session")
    for refused in (
        server.operate("/save_session", path=path, prompt=PROMPTS[0]),
        server.operate("/restore_session", path=path),
    ):
        assert refused.status_code == 400
        assert "--data-parallel-size-local" in refused.json()["error"]["message"]


def test_a_server_without_engines_of_its_own_that_is_started_again(model: Path, port: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = _common(port, "--data-parallel-size", "2")
        headless = Headless(model, folder, options)
        try:
            for _ in range(2):
                with _server(model, folder, options, local=0) as server:
                    _until(lambda: server.engines() == ["ready"] * 2)  # noqa: B023
                    assert server.tokens(PROMPTS[0], 0) == server.tokens(PROMPTS[0], 1)
                    server.process.kill()
                    server.process.wait()
            assert headless.stop() == 0
        finally:
            headless.kill()


def test_what_does_not_belong_is_refused_and_the_right_engines_are_waited_for(
    model: Path, other_weights: Path, port: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        secret, other = folder / "secret", folder / "other"
        secret.write_text("what both machines know")
        other.write_text("what one machine knows")
        common = _common(port, "--data-parallel-size", "2")
        options = (*common, "--node-secret-file", str(secret))
        with _server(model, folder, options) as server:
            strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
            for each, given, words in (
                (model, (*common, "--node-secret-file", str(other)), "the same secret"),
                (model, common, "the same secret"),
                (other_weights, options, "has another model, or other files of it"),
                (model, (*options, "--max-num-seqs", "9"), "was started with other options"),
            ):
                refused = Headless(each, folder, (*given, "--data-parallel-start-rank", "1"))
                assert refused.process.wait(120) == 2, refused.log.read_text()
                assert words in refused.log.read_text().splitlines()[-1]
            assert server.engines() == ["ready", "restarting"]
            with _headless(model, folder, options):
                _until(lambda: server.engines() == ["ready"] * 2)
                assert server.tokens(PROMPTS[0], 1) == server.tokens(PROMPTS[0], 0)
            for stranger in strangers:
                stranger.close()
            log = server.log.read_text()
            assert "does not have the same secret" in log and "Traceback" not in log
