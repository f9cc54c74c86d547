"""A tiny model on a device against the reference beside it.

python -m tools.gpu.tiny FOLDER DEVICE DTYPE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pagemill.inputs.task import Task

from tools.gpu.pooled import PooledReference
from tools.gpu.records import say
from tools.gpu.reference import Reference, compare
from tools.gpu.started import exit_status, start

# A step's limit. Prompts run in several steps, beside others; decoding is replayed from graphs.
STEP_TOKENS = 32
# All prompts run in one step: only more than 32 rows are multiplied in fp8.
WIDE_STEP_TOKENS = 96


def options(step_tokens: int = STEP_TOKENS) -> dict[str, Any]:
    """Those of `pagemill serve` that tiny models have."""
    return {"max_model_len": 128, "max_num_seqs": 4, "max_num_batched_tokens": step_tokens}


def main(arguments: list[str]) -> int:
    """Compare; the exit status."""
    folder, device, dtype = arguments

    def run() -> bool:
        path = Path(folder)
        pooled = PooledReference.load(path)
        if pooled is None:
            reference = Reference.load(path)
            with start(path, device, dtype, options(reference.step_tokens)) as started:
                found = compare(started, reference, dtype).record()
        else:
            with start(path, device, dtype, options(), Task(pooled.task)) as started:
                found = pooled.record(started, dtype)
        say(**found)
        return bool(found["passed"])

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
