"""What the offline benchmarks run."""

from dataclasses import dataclass, field

from pagemill.benchmark.prompts import PromptConfig, Request, random_requests
from pagemill.config import Range, option
from pagemill.config.fields import check

_COUNT = Range(1, 10**6)


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """Workload: batches of requests; the end of the text is ignored."""

    prompts: PromptConfig = field(default_factory=PromptConfig)
    num_prompts: int = option(32, "Requests of one run.", unit="requests", allowed=_COUNT)
    temperature: float | None = option(
        None,
        "Sampling temperature. Default: what the server uses if a request has none.",
        allowed=Range(0, 100),
    )
    num_iters: int = option(3, "Runs that are measured; the median is reported.", allowed=_COUNT)
    num_warmups: int = option(1, "Runs before, not measured.", allowed=Range(0, 10**6))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def random_run(config: WorkloadConfig, vocab_size: int, run: int) -> list[Request]:
    """Returns requests with random token ids; each run has its own.

    Ids below 256 are left out where the vocabulary allows it: control tokens are found there.
    """
    token_ids = range(256 if vocab_size > 1024 else 0, vocab_size)
    name = str(run)
    return random_requests(config.prompts, config.num_prompts, token_ids, run=name, prefix_run=name)
