"""`pagemill serve --nnodes 2`: two processes on one machine, as those of two machines, answer as
ranks of one, end together, and refuse what does not belong to them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.engine.reserved_port import reserved_port

from tests.e2e.server_process import (
    NAME,
    SMOLLM2,
    SMOLLM2_REASON,
    ServerProcess,
    serve,
)

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

SIZES = ("--max-model-len", "512", "--max-num-seqs", "8", "--threads", "1")
TENSOR = (*SIZES, "--tensor-parallel-size", "2")
STAGES = (*SIZES, "--pipeline-parallel-size", "2")


class Node:
    """Node 1, which joins the server that a test starts."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.log = folder / "node.log"
        command = [sys.executable, "-m", "pagemill.cli", "serve", SMOLLM2, *options]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [*command, "--node-rank", "1"], stdout=output, stderr=subprocess.STDOUT
            )

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(120)


@contextlib.contextmanager
def node_1(folder: Path, options: Sequence[str]) -> Iterator[Node]:
    node = Node(folder, options)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            node.process.kill()
        node.process.wait()


@contextlib.contextmanager
def node_0(options: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Node 0, which need not become ready."""
    command = [sys.executable, "-m", "pagemill.cli", "serve", SMOLLM2, *options]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--port", "0"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_line(words: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)


@contextlib.contextmanager
def for_both(*options: str) -> Iterator[tuple[str, ...]]:
    """The options of both nodes, which meet at a port that is reserved for them."""
    with reserved_port() as port:
        yield (*options, "--nnodes", "2", "--master-port", str(port))


@contextlib.contextmanager
def two_nodes(folder: Path, *options: str) -> Iterator[tuple[ServerProcess, Node]]:
    with (
        for_both(*options) as both,
        node_1(folder, both) as node,
        serve(SMOLLM2, folder, both) as server,
    ):
        yield server, node


def complete(server: ServerProcess, prompt: str = "The capital of France is") -> Any:
    body = {"model": NAME, "prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 3}
    response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    response.raise_for_status()
    (choice,) = response.json()["choices"]
    return choice


PROMPTS = ("The capital of France is", "def fibonacci(n):", "Once upon a time " * 40)


@pytest.mark.parametrize(
    "options", [TENSOR, STAGES, (*STAGES, "--tensor-parallel-size", "2")], ids=str
)
def test_results_are_those_of_ranks_of_one_machine(tmp_path: Path, options: tuple[str]) -> None:
    with serve(SMOLLM2, tmp_path, options) as server:
        expected = [complete(server, prompt) for prompt in PROMPTS]
        assert server.stop() == 0
    with two_nodes(tmp_path, *options) as (server, node):
        assert [complete(server, prompt) for prompt in PROMPTS] == expected  # to the last bit
        assert server.stop() == 0
        assert node.wait() == 0, node.log.read_text()


def rank_worker(process: subprocess.Popen[Any]) -> int:
    """The process of the other rank of a node that has two."""
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    (worker,) = (pid for pid in pids if b"rank_worker" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return worker


def test_a_killed_node_ends_the_server_with_its_name(tmp_path: Path) -> None:
    with two_nodes(tmp_path, *STAGES) as (server, node):
        complete(server)
        node.process.kill()
        assert server.process.wait(60) == 1
        sentence = "rank 1 of 2 (node 1, 127.0.0.1) has died or left the group"
        assert sentence in server.log.read_text()


def test_a_killed_rank_that_no_node_waits_for_ends_all(tmp_path: Path) -> None:
    with two_nodes(tmp_path, *STAGES, "--tensor-parallel-size", "2") as (server, node):
        complete(server)
        os.kill(rank_worker(node.process), signal.SIGKILL)  # rank 3
        assert node.wait() == 1
        assert "rank 3 of 4" in node.log.read_text()
        assert server.process.wait(60) == 1
        assert "(node 1, 127.0.0.1) has died" in server.log.read_text()


def test_a_killed_rank_of_the_server_is_no_end_in_order(tmp_path: Path) -> None:
    with two_nodes(tmp_path, *STAGES, "--tensor-parallel-size", "2") as (server, node):
        complete(server)
        os.kill(rank_worker(server.process), signal.SIGKILL)  # rank 1
        assert server.process.wait(60) == 1
        assert node.wait() == 1, node.log.read_text()


@pytest.mark.parametrize("options", [TENSOR, STAGES], ids=["tensor", "stages"])
def test_a_killed_server_ends_the_other_node(tmp_path: Path, options: tuple[str]) -> None:
    with two_nodes(tmp_path, *options) as (server, node):
        complete(server)
        server.process.kill()
        assert node.wait() == 1
        assert "rank 0 of 2 (node 0, 127.0.0.1) has died" in node.log.read_text()


def test_the_cache_has_what_fits_on_both_nodes(tmp_path: Path) -> None:
    small = ("--kv-cache-memory-bytes", "8MiB")
    with (
        for_both(*STAGES) as both,
        node_1(tmp_path, (*both, *small)),
        serve(SMOLLM2, tmp_path, both) as server,
    ):
        # Node 0 has as many layers, so as many bytes for as many pages.
        assert "KV cache 7.9 MiB = 704 tokens" in server.log.read_text()
        complete(server)


def test_node_0_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    log = tmp_path / "zero.log"
    with for_both(*STAGES) as both, node_0(both, log) as zero:
        wait_for_line("1 (node 1)", log, zero)
        zero.terminate()
        assert zero.wait(60) == 0


def refused(node: Node, words: str) -> None:
    assert node.wait() == 2
    assert words in node.log.read_text(), node.log.read_text()


def test_a_node_that_does_not_belong_is_refused_and_the_right_node_is_waited_for(
    tmp_path: Path,
) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("what both nodes know")
    other.write_text("what one node knows")
    log = tmp_path / "zero.log"
    secrets = ("--node-secret-file", str(secret))
    with for_both(*STAGES, *secrets) as known, node_0(known, log) as zero:
        with node_1(tmp_path, (*known, "--node-secret-file", str(other))) as node:
            refused(node, "does not have the same secret (--node-secret-file)")
        with node_1(tmp_path, (*known, "--max-num-seqs", "9")) as node:
            refused(node, "node 1 was started with other options than node 0")
        wait_for_line("the last that tried: node 1 was started with other options", log, zero)
        with node_1(tmp_path, known) as node:
            wait_for_line("is ready after", log, zero)
            zero.terminate()
            assert zero.wait(60) == 0
            assert node.wait() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--master-addr", "10.255.0.7"), "needs --node-secret-file"),
        (("--kv-offloading-bytes", "1MiB"), "--kv-offloading-bytes"),
        (("--enable-lora",), "--enable-lora"),
        (("--device", "cuda"), "--device cuda cannot be used with --nnodes 2"),
        (("--nnodes", "3"), "--nnodes 3 needs a multiple of 3 ranks"),
    ],
)
def test_what_nodes_cannot_do_is_refused_with_the_option(
    tmp_path: Path, options: tuple[str], words: str
) -> None:
    with for_both(*TENSOR) as both, node_1(tmp_path, (*both, *options)) as node:
        refused(node, words)
