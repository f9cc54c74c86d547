"""The offline benchmarks: batches of requests in this process, and what their times say.

measured = run_offline(workload, config, with_limits=True, with_profile=False, trace=None,
    note=print)
print(latency_report(measured))
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pagemill.benchmark.machine_limits import MachineLimits, RunSize, limits_or_none
from pagemill.benchmark.machine_load import MachineLoad
from pagemill.benchmark.offline import OfflineModel, TimedOutput
from pagemill.benchmark.prompts import Request
from pagemill.benchmark.step_profile import RunProfile
from pagemill.benchmark.workload import WorkloadConfig, random_run
from pagemill.config import EngineConfig


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """The runs of one workload after its warm-ups, and what was measured beside them."""

    workload: WorkloadConfig
    config: EngineConfig
    requests: list[Request]
    """Those of the last run."""
    runs: list[list[TimedOutput]]
    temperature: float | None
    other_cores: float | None
    """Cores that other processes used meanwhile."""
    limits: MachineLimits | None
    profile: RunProfile | None

    @property
    def seconds(self) -> float:
        """Median time of a run, from submission to the last token."""
        return statistics.median(max(each.done_s for each in run) for run in self.runs)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens of the last run that were not computed: another request had the same."""
        return sum(each.num_cached_tokens for each in self.runs[-1])

    @property
    def prompt_tokens(self) -> int:
        """Of all requests."""
        return sum(len(each.prompt) for each in self.requests)

    @property
    def output_tokens(self) -> int:
        """Of all requests."""
        return sum(each.output_len for each in self.requests)


def run_offline(
    workload: WorkloadConfig,
    config: EngineConfig,
    *,
    with_limits: bool,
    with_profile: bool,
    trace: str | None,
    note: Callable[[str], None],
) -> MeasuredRuns:
    """Loads the model, runs the workload and ends the model; `note` gets a line for each run.

    `trace` is a file for the steps of the measured runs, in Chrome's trace format.

    Raises:
      ConfigError: the data set cannot be used.
      EngineError: the engine refuses or fails a request. Besides, what `load` raises.
    """
    limits = limits_or_none(config, with_limits, note)
    load = MachineLoad()
    model = OfflineModel.load(config)
    profile: RunProfile | None = None
    runs: list[list[TimedOutput]] = []
    try:
        dataset = (
            None
            if workload.prompts.dataset is None
            else model.requests_of(workload.prompts, workload.num_prompts)
        )
        requests: list[Request] = []
        for index in range(workload.num_warmups + workload.num_iters):
            if with_profile and index == workload.num_warmups:
                profile = model.profile()
            if trace is not None and index == workload.num_warmups:
                model.start_trace(trace)
            if dataset is None:
                requests = random_run(workload, model.vocab_size, index)
            else:
                requests = dataset
                model.forget_prompts()
            outputs = model.run(requests, workload.temperature)
            if index >= workload.num_warmups:
                runs.append(outputs)
                note(f"run {len(runs)}: {max(output.done_s for output in outputs):.3f} s")
        if trace is not None:
            model.stop_trace()
    finally:
        model.close()
    temperature = model.temperature(workload.temperature)
    return MeasuredRuns(
        workload, config, requests, runs, temperature, load.other_cores(), limits, profile
    )


def latency_report(measured: MeasuredRuns) -> dict[str, Any]:
    """Times of one batch: its first tokens, then steps of one token for each request."""
    limits, requests = measured.limits, len(measured.requests)
    total = measured.seconds
    first = statistics.median(
        statistics.median(each.first_token_s for each in run) for run in measured.runs
    )
    longest = max(each.output_len for each in measured.requests)
    steps = (longest - 1) / (total - first) if longest > 1 else None
    report: dict[str, Any] = {
        "requests": requests,
        "input_tokens": measured.prompt_tokens / requests,
        "output_tokens": measured.output_tokens / requests,
        "temperature": measured.temperature,
        "latency_ms": 1e3 * total,
        "first_token_ms": 1e3 * first,
        "prefill_tokens_per_s": measured.prompt_tokens / first,
        "decode_steps_per_s": steps,
        "decode_tokens_per_s": (measured.output_tokens - requests) / (total - first)
        if steps
        else None,
        "other_cores": measured.other_cores,
    }
    if limits:
        tokens = measured.prompt_tokens - measured.cached_tokens
        # Steps have fewer requests from the end of the first on.
        together = round((measured.output_tokens - requests) / max(1, longest - 1))
        step_tokens = measured.config.scheduler.max_num_batched_tokens
        report["limits"] = limits.as_json()
        report["achieved_over_limit"] = {
            "decode": steps * limits.decode_seconds(together) if steps else None,
            "prefill": limits.prefill_seconds(tokens, requests, step_tokens) / first,
        }
    return report


def throughput_report(measured: MeasuredRuns) -> dict[str, Any]:
    """Requests and tokens per second of one batch."""
    limits, requests, seconds = measured.limits, len(measured.requests), measured.seconds
    generated = measured.output_tokens
    report: dict[str, Any] = {
        "requests": requests,
        "input_tokens": measured.prompt_tokens / requests,
        "of_them_cached": measured.cached_tokens / requests,
        "output_tokens": generated / requests,
        "temperature": measured.temperature,
        "seconds": seconds,
        "requests_per_s": requests / seconds,
        "output_tokens_per_s": generated / seconds,
        "total_tokens_per_s": (generated + measured.prompt_tokens) / seconds,
        "other_cores": measured.other_cores,
    }
    if limits:
        scheduler = measured.config.scheduler
        run_size = RunSize(
            requests=requests,
            together=min(requests, scheduler.max_num_seqs),
            prompt_tokens=measured.prompt_tokens - measured.cached_tokens,
            output_len=generated / requests,
        )
        shortest = limits.run_seconds(run_size, scheduler.max_num_batched_tokens)
        report["limits"] = {**limits.as_json(), "output_tokens_per_s": generated / shortest}
        report["achieved_over_limit"] = shortest / seconds
    return report
