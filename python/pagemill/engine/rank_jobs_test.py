"""Jobs for the process of a rank: their answers, and that a rank which gives none is ended."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pagemill.engine import rank_jobs
from pagemill.engine.outputs import EngineError

_ECHO = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"value": json.loads(line)}), flush=True)
"""


@contextmanager
def process_of(code: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_each_job_gets_its_answer() -> None:
    with process_of(_ECHO) as process:
        for size in (3, 40):
            rank_jobs.send(process, "adapter", size=size)
            answer = rank_jobs.receive_answer(process, limit_s=60)
            assert answer == {"kind": "adapter", "size": size}


def test_a_job_that_fails_does_not_end_the_rank() -> None:
    jobs = io.StringIO("".join(json.dumps({"kind": kind}) + "\n" for kind in ("bad", "good")))
    answers = io.StringIO()

    def fail(_: object) -> None:
        raise ValueError("no such file")

    rank_jobs.serve({"bad": fail, "good": lambda job: job["kind"]}, jobs, answers)
    lines = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert lines == [{"error": "no such file"}, {"value": "good"}]


def test_a_failure_is_an_error_of_the_caller() -> None:
    with process_of('print(\'{"error": "too large"}\')') as process:
        with pytest.raises(EngineError, match="too large") as error:
            rank_jobs.receive_answer(process, limit_s=60)
        assert error.value.code == "INVALID_ARGUMENT"


def test_a_rank_that_does_not_answer_is_ended() -> None:
    with process_of("import time; time.sleep(600)") as process:
        rank_jobs.send(process, "fingerprint")
        with pytest.raises(EngineError, match=r"did not answer within 0\.1 s") as error:
            rank_jobs.receive_answer(process, limit_s=0.1)
        assert error.value.code == "UNAVAILABLE"
        assert process.wait() == -signal.SIGKILL


def test_a_rank_that_has_ended_is_an_error() -> None:
    with process_of("") as process:
        process.wait()
        with pytest.raises(EngineError, match="has ended"):
            rank_jobs.receive_answer(process, limit_s=60)
        with pytest.raises(EngineError, match="has ended"):
            rank_jobs.send(process, "fingerprint")
