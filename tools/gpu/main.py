"""Checks and measures the torch executor on a GPU; implements `tools/gpu/check`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = "smollm2-135m,gemma3-270m,qwen2-0.5b,llama-1b,llama-8b"
# Models whose native executor is compared, too: larger ones take minutes on a CPU.
NATIVE_MODELS = ("tiny", "smollm2-135m")


def missing(device: str) -> str | None:
    """The reason why nothing can be checked here; None if it can."""
    for module in ("torch", "numpy", "safetensors", "nanobind"):
        if importlib.util.find_spec(module) is None:
            return f"the Python package {module} is not installed"
    if shutil.which("g++") is None:
        return "there is no g++"
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/gpu/check", description=__doc__)
    parser.add_argument("--models", default=MODELS, help="names from tools/gpu/models.py")
    parser.add_argument("--device", default="cuda", help="as torch names it")
    parser.add_argument("--context", type=int, default=2048, help="tokens of prompts when timing")
    parser.add_argument("--batches", default="1,32", help="requests in a decode step when timing")
    parser.add_argument("--matrix", type=int, default=8192, help="size for the device's limits")
    parser.add_argument("--output", type=Path, help="JSON file [bench/results/gpu-<device>.json]")
    parser.add_argument("--keep-extension", action="store_true", help="use the one that is there")
    return parser.parse_args(arguments)


def _extension_is_there() -> bool:
    try:
        importlib.import_module("pagemill._native")
    except ImportError:
        return False
    return True


def check(options: argparse.Namespace) -> int:
    """Build, compare, measure, write; returns the exit status."""
    import torch

    from tools.gpu import extension, measure, models, parity

    started = time.perf_counter()
    if not (options.keep_extension and _extension_is_there()):
        with tempfile.TemporaryDirectory() as folder:
            extension.build(ROOT, ROOT / "python/pagemill/_native/_core.so", Path(folder))
    build_s = time.perf_counter() - started
    print(f"extension: {build_s:.0f} s", flush=True)
    limits = measure.device_limits(options.device, size=options.matrix)
    print(limits, flush=True)
    batches = [int(batch) for batch in options.batches.split(",")]
    results: dict[str, object] = {}
    passed = True
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            models.write_checkpoint(models.SHAPES[name], directory, options.device)
            compared = parity.check_parity(directory, options.device, native=name in NATIVE_MODELS)
            print(f"{name}: {compared}", flush=True)
            speed = measure.measure_speed(
                directory, options.device, limits, context=options.context, batches=batches
            )
            print(f"{name}: {speed}", flush=True)
        passed = passed and compared.passed
        results[name] = {
            "parity": dataclasses.asdict(compared),
            "speed": dataclasses.asdict(speed),
        }
    report = {
        "device": dataclasses.asdict(limits),
        "torch": torch.__version__,
        "extension_build_s": build_s,
        "passed": passed,
        "models": results,
    }
    label = "-".join(limits.name.split()).lower()
    output: Path = options.output or ROOT / f"bench/results/gpu-{label}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{'passed' if passed else 'FAILED'}; written to {output}")
    return 0 if passed else 1


def main(arguments: list[str]) -> int:
    """Run; returns the exit status, 0 also if there is nothing to check on."""
    options = parse(arguments)
    reason = missing(options.device)
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    return check(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
