"""Jobs of rank 0 for the process of another rank, beside the steps: lines of JSON on its standard
input, with an answer to each on its standard output.

    send(process, "fingerprint")                             # rank 0
    text = receive_answer(process, limit_s=600.0)
    serve({"fingerprint": fingerprint}, sys.stdin, sys.stdout)   # the rank, in a thread of its own
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Callable, Mapping
from typing import IO, Any

from pagemill import _native
from pagemill.engine.outputs import EngineError


def send(process: subprocess.Popen[bytes], kind: str, **fields: Any) -> None:
    """Gives the rank a job; the answer to it must be received before another is sent.

    Raises:
        EngineError: the rank has ended.
    """
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise _ended(process) from error


def receive_answer(process: subprocess.Popen[bytes], limit_s: float) -> Any:
    """The answer to the job that was sent. A rank that takes longer is ended, since its next answer
    would be taken for that to another job.

    Raises:
        EngineError: the job failed, or the rank has ended.
    """
    assert process.stdout is not None
    ready = select.poll()  # no earlier byte is in the pipe's buffer: an answer is one line
    ready.register(process.stdout, select.POLLIN)
    if not ready.poll(limit_s * 1000):
        process.kill()
        raise EngineError(
            "UNAVAILABLE",
            f"process {process.pid}, a rank of the model, did not answer within {limit_s:g} s, and"
            " was ended",
        )
    line = process.stdout.readline()
    if not line:
        raise _ended(process)
    answer = json.loads(line)
    if "error" in answer:
        raise EngineError("INVALID_ARGUMENT", answer["error"])
    return answer["value"]


def serve(
    handlers: Mapping[str, Callable[[Mapping[str, Any]], Any]], jobs: IO[str], answers: IO[str]
) -> None:
    """Answers what `send` sends with what the handler of its kind returns, until `jobs` ends."""
    for line in jobs:
        job = json.loads(line)
        try:
            answer: dict[str, Any] = {"value": handlers[job["kind"]](job)}
        except (_native.StatusError, OSError, ValueError, KeyError) as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _ended(process: subprocess.Popen[bytes]) -> EngineError:
    return EngineError("UNAVAILABLE", f"process {process.pid}, a rank of the model, has ended")
