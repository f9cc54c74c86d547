"""Real processes of a fake `pagemill serve`."""

import os
import signal
import threading
from pathlib import Path

import pytest

from pagemill.benchmark.server_client import ClientError, ServerClient
from pagemill.benchmark.server_process import ServerError, as_flags, running_server
from pagemill.benchmark.testing.fake_serve import COLD_S, COMMAND, starts


def _answers(url: str) -> bool:
    try:
        return ServerClient(url).first_model() == "fake"
    except ClientError:
        return False


def test_a_server_is_waited_for_and_stopped(tmp_path: Path) -> None:
    with running_server({"cache_dir": str(tmp_path), "max_num_seqs": 4}, COMMAND) as server:
        assert server.ready_s >= COLD_S
        assert _answers(server.url)
        assert (server.peak_bytes() or 0) > 2**20
    assert not _answers(server.url)
    (flags,) = starts(tmp_path)
    port = server.url.rpartition(":")[2]
    assert flags[1:] == ["--max-num-seqs=4", "--host=127.0.0.1", f"--port={port}"]


def test_a_server_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(ServerError, match=r"(?s)ended with status 1:.*no such model"),
        running_server({"model": "broken"}, COMMAND),
    ):
        pytest.fail("it is not ready")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server(number: signal.Signals, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    urls: list[str] = []
    with (
        pytest.raises(KeyboardInterrupt),
        running_server({"cache_dir": str(tmp_path)}, COMMAND) as server,
    ):
        urls.append(server.url)
        os.kill(os.getpid(), number)
        threading.Event().wait(10)
    assert not _answers(urls[0])
    assert signal.getsignal(signal.SIGTERM) is before


def test_options_become_flags() -> None:
    options = {
        "model": "a b.gguf",
        "enable_prefix_caching": False,
        "trust_control_tokens": True,
        "served_model_name": ("x", "y"),
        "hf_overrides": {"a": 1e-5},
        "max_model_len": None,
        "block_size": 16,
    }
    assert as_flags(options) == [
        "--model=a b.gguf",
        "--no-enable-prefix-caching",
        "--trust-control-tokens",
        "--served-model-name=x",
        "--served-model-name=y",
        '--hf-overrides={"a": 1e-05}',
        "--block-size=16",
    ]
