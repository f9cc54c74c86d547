"""What a step costs the host: decode steps of a model whose work on the device is small.

    python -m tools.gpu.host_work FOLDER DEVICE BATCHES TOKENS

Another step runs on the device meanwhile, so what a step takes without waiting for the device is
the host's work for it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tools.gpu.anchors import numbers
from tools.gpu.records import say
from tools.gpu.started import start


def main(arguments: list[str]) -> int:
    """Measure; the exit status."""
    folder, device, batches = Path(arguments[0]), arguments[1], numbers(arguments[2])
    tokens = int(arguments[3])
    flags = {
        "max_model_len": tokens + 2,
        "max_num_seqs": max(batches),
        "max_num_batched_tokens": 256,
    }
    with start(folder, device, "bf16", flags) as started:
        runner = started.core.runner
        for batch in batches:
            started.run([[1]] * batch, 4)
            runner.set_profiling(True)
            begun = time.monotonic()
            started.run([[1]] * batch, tokens)
            seconds = time.monotonic() - begun
            times = runner.profile(decode=True)
            runner.set_profiling(False)
            step_us = 1e6 * seconds / tokens
            say(
                what="host",
                batch=batch,
                step_us=step_us,
                host_us=step_us - 1e6 * times.collect_s / times.steps,
                batch_us=1e6 * times.batch_s / times.steps,
                sampling_us=1e6 * times.sampling_s / times.steps,
                between_us=1e6 * times.between_s / times.steps,
                enqueue_us=1e6 * (times.model_s - times.collect_s) / times.steps,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
