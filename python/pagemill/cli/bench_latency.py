"""`pagemill bench latency`: one batch, from its submission to its last token."""

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
        "pagemill bench latency",
        "Times one batch of requests from submission to the last token, offline. With one request"
        " (--num-prompts 1) it is single-stream decoding. What is achieved is compared with the"
        " machine's limits, measured just before: no step is shorter than reading the weights once,"
        " or than the multiplications that its tokens need (docs/performance.md).",
        "pagemill bench latency --num-prompts 1\npagemill bench latency model.gguf --input-len 1k",
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
    from pagemill.cli.machine_limits import limits_or_none
    from pagemill.cli.machine_load import MachineLoad
    from pagemill.cli.offline import OfflineModel

    workload = parser.read(WorkloadConfig, args, (EngineConfig,))
    config = parser.read(EngineConfig, args, (WorkloadConfig,))
    limits = limits_or_none(config, not args.no_limits, note)
    load = MachineLoad()
    model = OfflineModel.load(config)
    profile = None
    totals: list[float] = []
    firsts: list[float] = []
    shared = 0  # prompt tokens that were not computed, because another request had the same
    try:
        for run_index in range(workload.num_warmups + workload.num_iters):
            if args.profile and run_index == workload.num_warmups:
                profile = model.profile()
            prompts = random_prompts(workload, model.vocab_size, run_index)
            outputs = model.run(prompts, workload.output_len, workload.temperature)
            if run_index >= workload.num_warmups:
                totals.append(max(output.done_s for output in outputs))
                shared = sum(output.num_cached_tokens for output in outputs)
                firsts.append(statistics.median(output.first_token_s for output in outputs))
                note(f"run {len(totals)}: {totals[-1]:.3f} s")
    finally:
        model.close()
    total, first = statistics.median(totals), statistics.median(firsts)
    # Tokens after the first, one step each, all requests side by side.
    steps = (workload.output_len - 1) / (total - first) if workload.output_len > 1 else None
    report: dict[str, Any] = {
        "requests": workload.num_prompts,
        "input_tokens": workload.input_len,
        "output_tokens": workload.output_len,
        "temperature": model.temperature(workload.temperature),
        "latency_ms": 1e3 * total,
        "first_token_ms": 1e3 * first,
        "prefill_tokens_per_s": workload.num_prompts * workload.input_len / first,
        "decode_steps_per_s": steps,
        "decode_tokens_per_s": steps * workload.num_prompts if steps else None,
        "other_cores": load.other_cores(),
    }
    if limits:
        requests = workload.num_prompts
        tokens = requests * workload.input_len - shared
        shortest = limits.prefill_seconds(tokens, requests, config.scheduler.max_num_batched_tokens)
        report["limits"] = limits.as_json()
        report["achieved_over_limit"] = {
            "decode": steps * limits.decode_seconds(requests) if steps else None,
            "prefill": shortest / first,
        }
    show(report, profile, args.profile, as_json=args.json)
    return 0
