"""Runs llama-bench once for each job: llama_bench_driver.py PROGRAM FILE.gguf THREADS.

It times a prompt or an output, not both, and only in total: the tokens' times are spread evenly.
"""

import json
import subprocess
import sys
import time

from driver_loop import Generate, serve


def _seconds(*arguments: str) -> float:
    program, model, threads = sys.argv[1:4]
    done = subprocess.run(
        [program, "-m", model, "-t", threads, "-r", "1", "-o", "json", *arguments],
        stdout=subprocess.PIPE,
        check=True,
    )
    (result,) = json.loads(done.stdout)
    return result["avg_ns"] / 1e9


def _load() -> Generate:
    def generate(prompts: list[list[int]], output_len: int) -> list[list[float]]:
        (prompt,) = prompts
        first = time.perf_counter() + _seconds("-n", "0", "-p", str(len(prompt)))
        if output_len == 1:
            return [[first]]
        steps = output_len - 1
        each = _seconds("-p", "0", "-n", str(steps), "-d", str(len(prompt))) / steps
        return [[first + each * step for step in range(output_len)]]

    return generate


if __name__ == "__main__":
    serve(_load)
