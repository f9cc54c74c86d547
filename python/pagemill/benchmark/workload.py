"""What the offline benchmarks run."""

import random
from dataclasses import dataclass

from pagemill.config import Range, option
from pagemill.config.fields import check

_COUNT = Range(1, 10**6)


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """Workload: random token ids; the end of the text is ignored."""

    num_prompts: int = option(32, "Requests of one run.", unit="requests", allowed=_COUNT)
    input_len: int = option(128, "Prompt of each request.", unit="tokens", allowed=_COUNT)
    output_len: int = option(128, "Output of each request.", unit="tokens", allowed=_COUNT)
    temperature: float | None = option(
        None,
        "Sampling temperature. Default: what the server uses if a request has none.",
        allowed=Range(0, 100),
    )
    prefix_len: int = option(
        0, "Of each prompt, how much all have in common.", unit="tokens", allowed=Range(0, 10**6)
    )
    num_iters: int = option(3, "Runs that are measured; the median is reported.", allowed=_COUNT)
    num_warmups: int = option(1, "Runs before, not measured.", allowed=Range(0, 10**6))
    workload_seed: int = option(0, "Which random prompts.", allowed=Range(0, 2**31 - 1))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def random_prompts(config: WorkloadConfig, vocab_size: int, run: int) -> list[list[int]]:
    """Returns prompts that share their prefix and nothing else; each run has its own.

    Ids below 256 are left out where the vocabulary allows it: control tokens are found there.
    """
    lowest = 256 if vocab_size > 1024 else 0
    rng = random.Random(f"{config.workload_seed} {run}")
    prefix_len = min(config.prefix_len, config.input_len)
    prefix = [rng.randrange(lowest, vocab_size) for _ in range(prefix_len)]
    rest = config.input_len - prefix_len
    return [
        prefix + [rng.randrange(lowest, vocab_size) for _ in range(rest)]
        for _ in range(config.num_prompts)
    ]
