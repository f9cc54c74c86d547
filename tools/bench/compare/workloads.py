"""The workloads, and the values computed from their times."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagemill.benchmark.load_generator import RequestTimes
from pagemill.benchmark.percentiles import percentile

if TYPE_CHECKING:
    from pagemill.benchmark.machine_limits import MachineLimits

# Token ids that are ordinary text in every vocabulary.
_LOWEST_ID, _HIGHEST_ID = 256, 10_000
# What limits assume of a step; that of no peer is larger.
_STEP_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of equal length, greedy, end of text ignored, token ids as prompts."""

    name: str
    text: str  # for the report
    unit: str
    requests: int
    concurrency: int
    prefix_len: int  # length of the common prefix of all prompts
    input_len: int
    output_len: int
    value: Callable[[Workload, Sequence[RequestTimes]], float]
    server_only: bool = False

    def prompts(self, seed: int) -> list[list[int]]:
        """Returns the prompts of one round: prompts of different rounds have no common prefix."""
        rng = random.Random(f"{self.name} {seed}")

        def ids(count: int) -> list[int]:
            return [rng.randint(_LOWEST_ID, _HIGHEST_ID) for _ in range(count)]

        prefix = ids(self.prefix_len)
        return [prefix + ids(self.input_len - self.prefix_len) for _ in range(self.requests)]

    def limit(self, limits: MachineLimits) -> float:
        """Returns the machine's limit, in the unit of `value`."""
        from pagemill.benchmark.machine_limits import RunSize

        own = self.requests * (self.input_len - self.prefix_len)
        prompt_tokens = own + self.prefix_len
        if self.output_len == 1:
            return prompt_tokens / limits.prefill_seconds(prompt_tokens, 1, _STEP_TOKENS)
        if self.requests == 1:
            return 1 / limits.decode_seconds(1)
        run = RunSize(self.requests, self.concurrency, prompt_tokens, self.output_len)
        done = self.requests if self.server_only else self.requests * self.output_len
        return done / limits.run_seconds(run, _STEP_TOKENS)


def seconds(times: Sequence[RequestTimes]) -> float:
    """From the first request's sending to the last token."""
    return max(t.last for t in times) - min(t.sent for t in times)


def first_token_ms(times: Sequence[RequestTimes]) -> float:
    """The median over the requests."""
    return 1e3 * statistics.median(t.first - t.sent for t in times)


def gap_ms(times: Sequence[RequestTimes], percent: float) -> float:
    """Time between tokens, over all requests."""
    return 1e3 * percentile([gap for t in times for gap in t.gaps], percent)


def _decode_rate(work: Workload, times: Sequence[RequestTimes]) -> float:
    (only,) = times
    return (work.output_len - 1) / (only.last - only.first)


def _prefill_rate(work: Workload, times: Sequence[RequestTimes]) -> float:
    return work.input_len / (times[0].first - times[0].sent)


def _output_rate(work: Workload, times: Sequence[RequestTimes]) -> float:
    return work.requests * work.output_len / seconds(times)


def _request_rate(work: Workload, times: Sequence[RequestTimes]) -> float:
    return work.requests / seconds(times)


WORKLOADS = {
    work.name: work
    for work in (
        Workload("single", "one stream: 128 in, 128 out", "tok/s", 1, 1, 0, 128, 128, _decode_rate),
        Workload("prefill", "one prompt of 1,024", "tok/s", 1, 1, 0, 1024, 1, _prefill_rate),
        Workload(
            "batch",
            "32 requests at once: 256 in, 128 out; output",
            "tok/s",
            32,
            32,
            0,
            256,
            128,
            _output_rate,
        ),
        Workload(
            "shared",
            "32 requests at once: 512 in common + 32, 64 out; output",
            "tok/s",
            32,
            32,
            512,
            544,
            64,
            _output_rate,
        ),
        Workload(
            "http",
            "64 requests, 16 at a time, over HTTP: 128 in, 64 out",
            "req/s",
            64,
            16,
            0,
            128,
            64,
            _request_rate,
            server_only=True,
        ),
    )
}
