"""`pagemill bench throughput`: tokens per second over many requests."""

import statistics
from argparse import Namespace
from typing import Any

from pagemill.cli.bench_report import PROFILE_HELP
from pagemill.cli.workload import WorkloadConfig, random_prompts
from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench throughput",
        "Submits many requests at once, offline, and reports tokens per second over the whole run."
        " The limit given is that of a run without a pause: prompts first, then steps of up to"
        " --max-num-seqs requests, each as short as reading the weights once or its multiplications"
        " allow (docs/performance.md).",
        "pagemill bench throughput\n"
        "pagemill bench throughput --num-prompts 200 --input-len 512 --prefix-len 480",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--no-limits", action="store_true", help="skip measuring the limits (1 s)")
    made.add_argument(
        "--profile", nargs="?", const="ops", choices=("ops", "layers"), help=PROFILE_HELP
    )
    made.add_config(WorkloadConfig)
    made.add_config(EngineConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Runs the benchmark and prints its report."""
    from pagemill.cli.bench_report import note, show
    from pagemill.cli.machine_limits import RunSize, limits_or_none
    from pagemill.cli.machine_load import MachineLoad
    from pagemill.cli.offline import OfflineModel

    workload = parser.read(WorkloadConfig, args, (EngineConfig,))
    config = parser.read(EngineConfig, args, (WorkloadConfig,))
    limits = limits_or_none(config, not args.no_limits, note)
    load = MachineLoad()
    model = OfflineModel.load(config)
    profile = None
    times: list[float] = []
    cached = 0
    try:
        for run_index in range(workload.num_warmups + workload.num_iters):
            if args.profile and run_index == workload.num_warmups:
                profile = model.profile()
            prompts = random_prompts(workload, model.vocab_size, run_index)
            outputs = model.run(prompts, workload.output_len, workload.temperature)
            if run_index >= workload.num_warmups:
                times.append(max(output.done_s for output in outputs))
                cached = sum(output.num_cached_tokens for output in outputs)
                note(f"run {len(times)}: {times[-1]:.3f} s")
    finally:
        model.close()
    seconds = statistics.median(times)
    generated = workload.num_prompts * workload.output_len
    report: dict[str, Any] = {
        "requests": workload.num_prompts,
        "input_tokens": workload.input_len,
        "of_them_cached": cached / workload.num_prompts,
        "output_tokens": workload.output_len,
        "temperature": model.temperature(workload.temperature),
        "seconds": seconds,
        "requests_per_s": workload.num_prompts / seconds,
        "output_tokens_per_s": generated / seconds,
        "total_tokens_per_s": (generated + workload.num_prompts * workload.input_len) / seconds,
        "other_cores": load.other_cores(),
    }
    if limits:
        run_size = RunSize(
            requests=workload.num_prompts,
            together=min(workload.num_prompts, config.scheduler.max_num_seqs),
            prompt_tokens=workload.num_prompts * workload.input_len - cached,
            output_len=workload.output_len,
        )
        shortest = limits.run_seconds(run_size, config.scheduler.max_num_batched_tokens)
        report["limits"] = {**limits.as_json(), "output_tokens_per_s": generated / shortest}
        report["achieved_over_limit"] = shortest / seconds
    show(report, profile, args.profile, as_json=args.json)
    return 0
