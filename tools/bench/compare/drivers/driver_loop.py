"""The protocol between a driver and the comparison: a job per line in, an answer per line out, as
JSON.

A driver runs in its peer's environment, so this imports nothing else. First it writes `{"ready":
true}`. A job is `{"prompts": [[ids]], "output_len": n}`; the answer has, for each prompt, seconds
since the job arrived: `{"tokens": [[seconds of each output token]]}`.
"""

import json
import os
import sys
import time
from collections.abc import Callable

# Prompts and output length -> for each prompt the time.perf_counter() of each of its tokens.
Generate = Callable[[list[list[int]], int], list[list[float]]]


def serve(load: Callable[[], Generate]) -> None:
    """Loads, and answers jobs until the input ends."""
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    generate = load()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        begin = time.perf_counter()
        tokens = generate(job["prompts"], job["output_len"])
        seconds = [[at - begin for at in times] for times in tokens]
        print(json.dumps({"tokens": seconds}), file=answers, flush=True)
