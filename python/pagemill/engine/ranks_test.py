"""A model divided between two processes gives the outputs of one, and both end together."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.llm import LLM
from pagemill.engine.loading import load
from pagemill.engine.outputs import EngineError
from pagemill.engine.ranks import RankWorkers

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")

OPTIONS: dict[str, Any] = {"max_model_len": 512, "kv_cache_memory_bytes": "64MiB"}
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "1, 2, 3, 4,"]

_LEADER = """
import sys, time
from pagemill.engine.llm import LLM
llm = LLM(sys.argv[1], max_model_len=256, kv_cache_memory_bytes="16MiB", tensor_parallel_size=2)
print(*llm.worker_pids, flush=True)
time.sleep(600)
"""


def greedy(ranks: int, **options: Any) -> list[list[int]]:
    # Integer activations would turn the last bit of a sum into a step of theirs, on some CPUs.
    options |= {"activation_dtype": "f32"}
    with LLM(SMOLLM2, tensor_parallel_size=ranks, **OPTIONS, **options) as llm:
        outputs = llm.generate(PROMPTS, temperature=0.0, max_tokens=48)
        return [output.choices[0].token_ids for output in outputs]


def gone(pid: int) -> bool:
    """Whether the process has ended, as a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_two_ranks_say_what_one_says() -> None:
    # The sum of the MLP's output is rounded at another place: 1 part in 10^7 of logits whose best
    # two differ by more than that at each of these tokens.
    assert greedy(2) == greedy(1)


def test_chunked_prompts_and_reference_kernels_run_on_ranks() -> None:
    assert greedy(2, max_num_batched_tokens=16) == greedy(1)
    short = {"max_model_len": 64, "kv_cache_memory_bytes": "16MiB", "kernel_filter": "reference"}
    with LLM(SMOLLM2, tensor_parallel_size=2, **short) as llm:
        output = llm.generate("The capital of France is", temperature=0.0, max_tokens=2)[0]
    assert output.choices[0].text.startswith(" Paris")


def test_a_worker_that_is_killed_fails_requests_with_its_rank() -> None:
    with LLM(SMOLLM2, tensor_parallel_size=2, **OPTIONS) as llm:
        llm.generate(PROMPTS[0], temperature=0.0, max_tokens=2)
        (pid,) = llm.worker_pids
        os.kill(pid, signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(EngineError, match=rf"rank 1 of 2 \(process {pid}\) has died") as error:
            llm.generate(PROMPTS[0], temperature=0.0, max_tokens=2)
        assert error.value.code == "UNAVAILABLE"
        assert time.monotonic() - started < 10


def cpus_of_threads(process: str) -> list[set[int]]:
    """What each thread of a process of /proc may run on."""
    allowed: list[set[int]] = []
    for status in Path(f"/proc/{process}/task").glob("*/status"):
        (ranges,) = re.findall(r"^Cpus_allowed_list:\s+(.*)$", status.read_text(), re.MULTILINE)
        bounds = [[int(bound) for bound in part.split("-")] for part in ranges.split(",")]
        allowed.append({cpu for part in bounds for cpu in range(part[0], part[-1] + 1)})
    return allowed


@pytest.mark.skipif(_native.detect_capabilities().cores < 2, reason="one core")
def test_ranks_stay_on_cores_of_their_own() -> None:
    everything = os.sched_getaffinity(0)
    with LLM(SMOLLM2, tensor_parallel_size=2, **OPTIONS) as llm:
        llm.generate(PROMPTS[0], temperature=0.0, max_tokens=2)
        (pid,) = llm.worker_pids
        theirs = min(cpus_of_threads(str(pid)), key=len)
        assert theirs < everything
        assert everything - theirs in cpus_of_threads("self"), "the engine's thread"
        assert os.sched_getaffinity(0) == everything, "the front end is not pinned"


def test_closing_ends_the_workers() -> None:
    with LLM(SMOLLM2, tensor_parallel_size=2, **OPTIONS) as llm:
        (pid,) = llm.worker_pids
    assert gone(pid)


def test_no_worker_outlives_rank_0() -> None:
    command = [sys.executable, "-c", _LEADER, SMOLLM2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    leader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert leader.stdout is not None
    pid = int(leader.stdout.readline())
    leader.kill()
    leader.wait()
    deadline = time.monotonic() + 60
    while not gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_that_cannot_start_is_an_error() -> None:
    workers = RankWorkers.start(["no program"], {"num_threads": 1})
    with pytest.raises(EngineError, match=r"rank 1 of 2 .* with status 1"):
        workers.wait_ready()
    workers.stop()


def test_a_descriptor_that_is_no_segment_is_refused() -> None:
    with open(os.devnull) as file, pytest.raises(_native.StatusError) as error:
        _native.SharedSegment.open(file.fileno())
    assert error.value.code == "INVALID_ARGUMENT"


def config(**options: Any) -> EngineConfig:
    return build(EngineConfig, {"model": SMOLLM2, "tensor_parallel_size": 2, **OPTIONS, **options})


def test_other_executors_than_the_native_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="--tensor-parallel-size 2 needs --executor native"):
        load(config(executor="torch"))


def test_more_ranks_than_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1536 in units of 32 .* use --tensor-parallel-size 48"):
        load(config(tensor_parallel_size=64))


def test_a_session_of_ranks_goes_on_in_another_start(tmp_path: Path) -> None:
    file, tokens, cached = tmp_path / "session", list[list[int]](), list[int]()
    for start in range(2):
        with LLM(SMOLLM2, tensor_parallel_size=2, **OPTIONS) as llm:
            if start == 0:
                (output,) = llm.generate(PROMPTS[1], temperature=0.0, max_tokens=48)
                saved = llm.save_session(file, output)
                history = output.prompt_token_ids + output.choices[0].token_ids
            else:
                assert llm.restore_session(file).token_ids == history
            (output,) = llm.generate([[*history, 5]], temperature=0.0, max_tokens=8)
            tokens.append(output.choices[0].token_ids)
            cached.append(output.num_cached_tokens)
    assert tokens[0] == tokens[1]
    assert cached == [saved, saved]
