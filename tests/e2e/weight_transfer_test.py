"""A trainer beside a real server: `pagemill.rl` sends a part of the weights to its operator's
socket, with the engine in the server's process and not."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.rl import SendError, WeightSender
from safetensors.torch import load_file, save_file

from tests.e2e.server_process import NAME, ServerProcess, open_files, serve
from tests.families.word_tokenizer import save_tokenizer
from tests.parity.tiny_models import make

PROMPT = "w8 w6 w7 w200 w31 " * 8


class Trained:
    """A server, the operator's socket, and the folder that both write to."""

    def __init__(self, server: ServerProcess, address: str, folder: Path) -> None:
        self.server, self.address, self.folder = server, address, folder
        self.sender = WeightSender(address, bucket_bytes=40_000)

    def ask(self, route: str, status: int = 200, **fields: Any) -> Any:
        transport = httpx.HTTPTransport(uds=self.address)
        with httpx.Client(transport=transport, base_url="http://admin", timeout=60) as admin:
            response = admin.post(f"/{route}", json=fields)
        assert response.status_code == status, response.text
        return response.json()

    def is_paused(self) -> bool:
        return self._state().json()["is_paused"]

    def wait_until_loaded(self) -> None:
        """Another API process may answer clients before that of the operator's address does."""
        while self._state().status_code == 503:
            time.sleep(0.05)

    def _state(self) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=self.address)
        with httpx.Client(transport=transport, base_url="http://admin", timeout=60) as admin:
            return admin.get("/is_paused")


@contextlib.contextmanager
def trained(model: Path, folder: Path, *options: str) -> Iterator[Trained]:
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as name:
        address, shared = f"{name}/admin", Path(name, "shared")
        shared.mkdir()
        flags = [f"--admin-address={address}", f"--weight-transfer-dir={shared}", *options]
        with serve(str(model), folder, flags) as server:
            found = Trained(server, address, shared)
            found.wait_until_loaded()
            yield found
            assert server.stop() == 0


def saved(path: Path, seed: int) -> Path:
    path.mkdir()
    make("llama", path, "bf16", seed=seed)
    save_tokenizer(path)
    return path


def answer(server: ServerProcess, **fields: Any) -> str:
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": 16, "temperature": 0, **fields}
    response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def half(path: Path) -> dict[str, Any]:
    return dict(sorted(load_file(path / "model.safetensors").items())[::2])


@pytest.mark.parametrize("options", [[], ["--isolate-engine"], ["--api-server-count=2"]])
def test_a_trainer_sends_half_of_the_weights(options: list[str], tmp_path: Path) -> None:
    one, two = saved(tmp_path / "one", 1), saved(tmp_path / "two", 2)
    both = saved(tmp_path / "both", 1)
    save_file(load_file(one / "model.safetensors") | half(two), both / "model.safetensors")
    with serve(str(both), tmp_path) as server:
        expected = answer(server)
    with trained(one, tmp_path, *options) as running:
        assert running.sender.weight_version == ""
        before = answer(running.server)
        running.sender.send(half(two).items(), weight_version="7")
        assert before != answer(running.server) == expected
        assert running.sender.weight_version == "7"
        assert list(running.folder.iterdir()) == []
        running.sender.send(half(one).items(), weight_version="8", mode="abort")
        assert answer(running.server) == before
        assert running.ask("update_weight_version", new_version="9") == {"status": "updated"}
        assert running.sender.weight_version == "9"


def engine_process(running: Trained) -> int:
    """The child of the server that has copies of what was sent."""
    pid = running.server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (engine,) = (
        int(child)
        for child in children
        if any(path.startswith(str(running.folder)) for path in open_files(int(child)))
    )
    return engine


def version_when_ready(sender: WeightSender) -> str:
    deadline = time.monotonic() + 120
    while True:
        try:
            return sender.weight_version
        except SendError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_an_engine_that_is_started_again_has_its_first_weights(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "one", 1), saved(tmp_path / "two", 2)
    with trained(one, tmp_path, "--isolate-engine") as running:
        before = answer(running.server)
        running.sender.send(half(two).items(), weight_version="7")
        assert answer(running.server) != before
        running.ask("start_weight_update")
        engine = engine_process(running)
        os.kill(engine, signal.SIGKILL)
        while Path(f"/proc/{engine}").exists():
            time.sleep(0.01)
        assert version_when_ready(running.sender) == ""
        running.ask("finish_weight_update", status=409)
        assert answer(running.server) == before


def test_no_step_runs_between_files(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "one", 1), saved(tmp_path / "two", 2)
    with trained(one, tmp_path) as running:
        running.ask("finish_weight_update", status=409)
        assert running.ask("start_weight_update") == {"status": "started"}
        running.ask("start_weight_update", status=409)
        answers: list[str] = []
        client = threading.Thread(target=lambda: answers.append(answer(running.server)))
        client.start()
        save_file(load_file(two / "model.safetensors"), running.folder / "all")
        assert running.ask("update_weights", file="all") == {"status": "updated"}
        client.join(0.3)
        assert client.is_alive() and running.is_paused()
        running.ask("finish_weight_update", weight_version="two")
        client.join(60)
        assert answers == [answer(running.server)]
        running.ask("pause", mode="keep")  # which a sender does not end
    with serve(str(two), tmp_path) as server:
        assert answers == [answer(server)]


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", 1)
    with trained(one, tmp_path) as running:
        before = answer(running.server)
        save_file(half(one), tmp_path / "outside")
        (running.folder / "link").symlink_to(tmp_path / "outside")
        (running.folder / "cut").write_bytes((tmp_path / "outside").read_bytes()[:-1])
        for file in (f"{tmp_path}/outside", "../outside", "link", "cut", "none", ".", "a/b"):
            error = running.ask("update_weights", status=400, file=file)["error"]
            assert error["param"] == "file", error
        running.ask("update_weights", status=400)
        running.ask("update_weights", status=400, file="link", path=str(one))
        running.ask("update_weights", status=400, file="")
        running.ask("update_weights", status=400, file="cut", weight_version="v" * 257)
        message = running.ask(
            "init_weight_transfer_engine", status=400, init_info={"master_port": 1}
        )["error"]["message"]
        assert "not through NCCL" in message
        name = next(iter(half(one)))
        for tensors in ({name: half(one)[name].float()}, {"lm": half(one)[name]}):
            with pytest.raises(SendError, match=name if name in tensors else "'lm'") as refused:
                running.sender.send(tensors.items())
            assert refused.value.status == 400
        assert not running.is_paused()
        assert answer(running.server) == before


def test_without_a_folder_nothing_can_be_sent(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", 1)
    with tempfile.TemporaryDirectory() as name:
        sender = WeightSender(f"{name}/admin")
        with pytest.raises(SendError, match="does not answer"):
            sender.send(half(one).items())
        with serve(str(one), tmp_path, [f"--admin-address={name}/admin"]) as server:
            with pytest.raises(SendError, match="--weight-transfer-dir") as refused:
                sender.send(half(one).items())
            assert refused.value.status == 409
            assert server.stop() == 0
