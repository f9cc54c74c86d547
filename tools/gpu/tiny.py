"""A tiny model on a device against the reference beside it.

python -m tools.gpu.tiny FOLDER DEVICE DTYPE
"""

from __future__ import annotations

import sys
from pathlib import Path

from pagemill.inputs.task import Task

from tools.gpu.pooled import PooledReference
from tools.gpu.records import say
from tools.gpu.reference import Reference, compare
from tools.gpu.started import exit_status, start

# Prompts run in several steps, beside others; decoding is replayed from graphs.
OPTIONS = {"max_model_len": 128, "max_num_seqs": 4, "max_num_batched_tokens": 32}


def main(arguments: list[str]) -> int:
    """Compare; the exit status."""
    folder, device, dtype = arguments

    def run() -> bool:
        pooled = PooledReference.load(Path(folder))
        task = None if pooled is None else Task(pooled.task)
        with start(Path(folder), device, dtype, OPTIONS, task) as started:
            if pooled is None:
                found = compare(started, Reference.load(Path(folder)), dtype).record()
            else:
                found = pooled.record(started, dtype)
        say(**found)
        return bool(found["passed"])

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
