"""`--data-parallel-size`: several engines of a tiny model behind one server."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.engine.llm import LLM
from pagemill.engine.sampling import SamplingParams

from tests.e2e.server_process import ServerProcess, open_files, serve
from tests.parity.llama_checkpoint import write_llama

GREEDY = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
PROMPTS = [[8, 6, 7, 200, number] for number in range(16)]
RANK = "X-data-parallel-rank"


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


class Several(ServerProcess):
    """A server with two engines, and its operator's socket."""

    @property
    def folder(self) -> Path:
        return self.log.parent

    def operate(self, route: str, **fields: Any) -> Any:
        transport = httpx.HTTPTransport(uds=str(self.folder / "admin"))
        with httpx.Client(transport=transport, base_url="http://operator", timeout=60) as client:
            response = client.post(route, json=fields) if fields else client.post(route)
        assert response.status_code == 200, response.text
        return response.json()

    def ask(self, prompt: list[int], engine: int | None = None, **fields: Any) -> httpx.Response:
        body = {"token_ids": prompt, "sampling_params": {**GREEDY, **fields}}
        headers = {} if engine is None else {RANK: str(engine)}
        url = f"{self.base_url}/inference/v1/generate"
        return httpx.post(url, json=body, headers=headers, timeout=60)

    def tokens(self, prompt: list[int], engine: int | None = None) -> list[int]:
        response = self.ask(prompt, engine)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["token_ids"]

    def engines(self, route: str = "/health") -> list[str]:
        return httpx.get(f"{self.base_url}{route}", timeout=60).json()["engines"]

    def pid(self, engine: int) -> int:
        """The process that has the socket of an engine."""
        rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
        inodes = {row[6] for row in rows if row[7:] and row[7].endswith(f"/engine-{engine}")}
        parent = self.process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in children:
            links = open_files(int(child))
            if inodes & {link.removeprefix("socket:[").removesuffix("]") for link in links}:
                return int(child)
        raise AssertionError(f"no process has the socket of engine {engine}")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def several(model: Path, request: pytest.FixtureRequest) -> Iterator[Several]:
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [
            *("--skip-tokenizer-init", "--data-parallel-size", "2"),
            *("--admin-address", str(folder / "admin"), "--profile-dir", str(folder)),
            *getattr(request, "param", ()),
        ]
        with serve(str(model), folder, options) as server:
            made = Several(server.process, server.base_url, server.log, server.seconds_to_ready)
            _until(lambda: made.engines() == ["ready", "ready"])
            yield made


@pytest.mark.parametrize("several", [(), ("--api-server-count", "2")], indirect=True)
def test_tokens_are_those_of_one_engine_and_load_spreads(several: Several, model: Path) -> None:
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        found[number] = several.tokens(PROMPTS[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(PROMPTS))] == _expected(model)
    total = len(PROMPTS) * GREEDY["max_tokens"]

    def counts(name: str, expected: float, **labels: str) -> list[float]:
        """Of both engines. A process of the front end that answers late is not in a page."""
        found: list[float] = []

        def all_are_counted() -> bool:
            found[:] = [several.metric(name, engine=str(each), **labels) for each in range(2)]
            return sum(found) == expected

        _until(all_are_counted)
        return found

    generated = counts("generation_tokens_total", total)
    assert min(generated) > 0
    success = counts("request_success_total", len(PROMPTS), finished_reason="length")
    assert [each * GREEDY["max_tokens"] for each in success] == generated


def test_a_header_pins_a_request(several: Several) -> None:
    for _ in range(6):
        several.tokens(PROMPTS[0], 1)
    _until(lambda: several.metric("generation_tokens_total", engine="1") == 48)
    assert several.metric("generation_tokens_total", engine="0") == 0
    for engine in ("2", "-1", "x", "01"):
        response = httpx.post(
            f"{several.base_url}/inference/v1/generate",
            json={"token_ids": [1]},
            headers={RANK: engine},
            timeout=60,
        )
        assert response.status_code == 400 and "0 to 1" in response.text


def test_a_killed_engine_loses_only_its_requests(several: Several) -> None:
    expected = several.tokens(PROMPTS[0])
    pids = [several.pid(engine) for engine in range(2)]
    answers: dict[int, httpx.Response] = {}

    def ask(engine: int) -> None:
        answers[engine] = several.ask(PROMPTS[0], engine)

    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    threads = [threading.Thread(target=ask, args=(engine,)) for engine in range(2)]
    for thread in threads:
        thread.start()
    active = f"{several.base_url}/load"
    _until(lambda: httpx.get(active, timeout=60).json()["server_load"] == 2)
    os.kill(pids[0], signal.SIGKILL)
    threads[0].join()
    assert answers[0].status_code == 503
    assert "started again" in answers[0].json()["error"]["message"]
    assert several.engines() == several.engines("/ready") == ["restarting", "ready"]
    os.kill(pids[1], signal.SIGCONT)
    threads[1].join()
    assert answers[1].json()["choices"][0]["token_ids"] == expected
    for _ in range(4):
        assert several.tokens(PROMPTS[0]) == expected
    _until(lambda: several.engines() == ["ready", "ready"])
    assert several.tokens(PROMPTS[0], 0) == expected
    assert several.metric("process_restarts_total", process="engine") == 1


def test_control_reaches_all_engines_and_one_that_comes_back(
    several: Several, model: Path, other_weights: Path
) -> None:
    old, new = _expected(model)[0], _expected(other_weights)[0]
    assert old != new
    assert [several.tokens(PROMPTS[0], engine) for engine in range(2)] == [old, old]
    assert several.operate("/update_weights", path=str(other_weights)) == {"status": "updated"}
    assert [several.tokens(PROMPTS[0], engine) for engine in range(2)] == [new, new]
    assert several.operate("/sleep") == {"status": "sleeping"}
    assert [several.ask(PROMPTS[0], engine).status_code for engine in range(2)] == [503, 503]
    assert several.operate("/wake_up") == {"status": "awake"}
    os.kill(several.pid(1), signal.SIGKILL)
    _until(lambda: several.metric("process_restarts_total", process="engine") == 1)
    _until(lambda: several.engines() == ["ready", "ready"])
    assert [several.tokens(PROMPTS[0], engine) for engine in range(2)] == [new, new]


def test_sessions_and_profiles(several: Several) -> None:
    folder = several.folder
    prompt = list(range(40))
    several.operate("/start_profile")
    several.tokens(prompt, 1)
    saved = folder / "session.kv"
    written = several.operate("/save_session", path=str(saved), prompt=prompt)
    assert written["num_tokens"] == 32
    assert sorted(path.name for path in folder.glob("session.kv*")) == ["session.kv"]
    profile = several.operate("/stop_profile")
    assert profile["complete"] and profile["num_steps"] >= 2
    paths = sorted(path.name for path in folder.glob("profile-1*.json"))
    assert paths == ["profile-1.engine-1.json", "profile-1.json"]
    assert all(json.loads((folder / path).read_text()) for path in paths)
    assert several.operate("/reset_prefix_cache") == {"success": True}
    assert several.operate("/restore_session", path=str(saved))["num_tokens"] == 32
    for engine in range(2):
        usage = several.ask(prompt, engine).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 32
