"""Measures a checkpoint in the engine: start, memory, graphs, decoding, prompts, and where the
device's time goes.

    python -m tools.gpu.anchors FOLDER DEVICE --context 1024 --batches 1,64,256 --prompts 1024,16384

Numbers are raw; tools/gpu/table.py relates them to the device's limits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pagemill.config import ConfigError
from pagemill.engine.devices import find_plugins
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.ops.program_text import from_text

from tools.gpu.records import say
from tools.gpu.reference import Reference, compare, difference
from tools.gpu.started import Answer, Started, exit_status, start
from tools.gpu.work import decode_bytes, prefill_operations, weight_bytes

_STEP_TOKENS = 8192  # of prompts in a step, at most
_SETTLED = 4  # tokens of a request after which its steps are replayed from a graph
_PROMPT_RUNS = 3
_MEMORY_UTILIZATION = 0.9
_SHOWN = 32  # kernels behind each other, of which times are kept: some layers
# Logits of random weights differ less than those of trained ones, which chats divide by 0.7 or so.
_DRAWN = {"temperature": 0.15, "top_p": 0.95}
# Ways to sample the tokens of many requests, which are compared with each other; their prompts, and
# the tokens that they decode, at most.
_PENALTIES, _LOGPROBS = {"repetition_penalty": 1.1}, {"logprobs": 5}
_SAMPLED: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("drawn", _DRAWN),
    ("drawn with penalties", {**_DRAWN, **_PENALTIES}),
    ("drawn with 5 log probabilities", {**_DRAWN, **_LOGPROBS}),
    ("drawn with penalties and 5 log probabilities", {**_DRAWN, **_PENALTIES, **_LOGPROBS}),
)
_SAMPLED_PROMPT, _SAMPLED_TOKENS = 64, 48
# Steps whose kernels are timed: their name, requests, tokens of each, and how they are drawn.
_PROFILED: tuple[tuple[str, int, int, Mapping[str, float] | None], ...] = (
    ("decode 1", 1, 16, None),
    ("decode 64", 64, 16, None),
    ("drawn 1", 1, 16, _DRAWN),
    ("drawn 64", 64, 16, _DRAWN),
    ("sampled 64", 64, 16, _SAMPLED[-1][1]),
    ("prefill", 1, 1, None),
)
# Requests that decode while the reference's prompt runs, at most, their prompts, and their tokens.
_MIXED_REQUESTS, _MIXED_PROMPT, _MIXED_TOKENS = 8, 4, 16


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; lists become lists of numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("device", help="as --device names it")
    parser.add_argument("--started", type=float, default=time.monotonic(), help="of the process")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=256, help="that requests decode")
    parser.add_argument("--batches", type=numbers, default=[1, 64, 256])
    parser.add_argument("--prompts", type=numbers, default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--cpu-offload-gb", type=float, default=0, help="as that of pagemill")
    parser.add_argument("--kernel-filter", default="", help="as that of pagemill")
    return parser.parse_args(arguments)


def numbers(text: str) -> list[int]:
    """Those of a list with commas."""
    return [int(word) for word in text.split(",")]


class Anchors:
    """The measurements of one engine, which goes on after one that fails."""

    def __init__(self, started: Started, options: argparse.Namespace) -> None:
        self._started = started
        self._options = options
        self._program = from_text(started.built.program_text)
        self._random = np.random.default_rng(0)

    def prompt(self, length: int) -> list[int]:
        """Random tokens."""
        return self._random.integers(0, self._started.built.vocab_size, length).tolist()

    def graphs(self) -> None:
        """Every size of decode steps for the first time, then again from graphs."""
        sizes = _sizes(max(self._options.batches))
        seconds: list[float] = []
        for _ in range(2):
            begun = time.monotonic()
            for size in sizes:
                self._started.run([[1]] * size, _SETTLED)
            seconds.append(time.monotonic() - begun)
        recording = seconds[0] - seconds[1]
        say(what="graphs", graphs=len(sizes), seconds=recording, replayed_s=seconds[1])

    def parity(self) -> None:
        """Against the reference beside the checkpoint."""
        reference = Reference.load(self._options.folder)
        say(**compare(self._started, reference, "bf16").record())

    def mixed(self) -> None:
        """The reference's prompts, which start while other requests decode, and what these decode
        against the same tokens as a prompt."""
        reference = Reference.load(self._options.folder)
        # All of them at once, and one more.
        requests = min(_MIXED_REQUESTS, max(self._options.batches) - 1)
        others = [self.prompt(_MIXED_PROMPT) for _ in range(requests)]
        answers = self._started.run(others, _MIXED_TOKENS, logprobs=True, late=reference.prompts)
        decoded, late = answers[: len(others)], answers[len(others) :]
        say(**difference(late, reference, "bf16").record(of="a prompt beside decoding"))
        texts = [[*other, *answer.tokens] for other, answer in zip(others, decoded, strict=True)]
        scored = self._started.run(texts, 1, logprobs=True)
        same = replace(
            reference,
            prompts=texts,
            generated=[[]] * len(texts),
            logprobs=[answer.logprobs[: len(texts[0]) - 1] for answer in scored],
            margins=[[]] * len(texts),
        )
        say(**difference(decoded, same, "bf16").record(of="decoding beside a prompt"))

    def decode(self, batch: int) -> None:
        """Steps of `batch` requests, none of which has the text of another."""
        # Many requests need fewer steps for the same accuracy.
        context, tokens = self._options.context, self._options.tokens // (1 if batch < 16 else 2)
        self._started.run([[1]] * batch, _SETTLED)
        answers = self._started.run([self.prompt(context) for _ in range(batch)], tokens)
        rate = _rate(answers)
        read = decode_bytes(self._program, batch, context + tokens // 2)
        say(
            what="decode",
            batch=batch,
            context=context,
            tokens_per_s=rate,
            step_s=batch / rate,
            bytes=read,
        )

    def sampled(self, batch: int) -> None:
        """Steps of `batch` requests, sampled in different ways."""
        context, tokens = self._options.context, self._options.tokens
        prompts = [self.prompt(min(_SAMPLED_PROMPT, context)) for _ in range(batch)]
        for how, drawn in _SAMPLED:
            answers = self._started.run(prompts, min(_SAMPLED_TOKENS, tokens), drawn=drawn)
            say(what="sampled", how=how, batch=batch, step_s=batch / _rate(answers))

    def scored(self, length: int) -> None:
        """A prompt whose tokens' log probabilities are wanted, the best of a few."""
        seconds: list[float] = []
        for _ in range(_PROMPT_RUNS):
            begun = time.monotonic()
            self._started.run([self.prompt(length)], 1, logprobs=True)
            seconds.append(time.monotonic() - begun)
        say(what="scored", tokens=length, seconds=min(seconds))

    def prefill(self, length: int) -> None:
        """The time to the first token of one prompt, the best of a few."""
        seconds: list[float] = []
        for _ in range(_PROMPT_RUNS):
            begun = time.monotonic()
            self._started.run([self.prompt(length)], 1)
            seconds.append(time.monotonic() - begun)
        work = prefill_operations(self._program, length)
        say(what="prefill", tokens=length, seconds=min(seconds), operations=work)

    def kernels(self) -> None:
        """Where the device's time goes, by torch's profiler, which sees all of the process: sums of
        kernels, and some in their order, with what is between them."""
        if not self._options.device.startswith("cuda"):
            return
        import torch
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.init()
        context = self._options.context
        for label, batch, tokens, drawn in _PROFILED:
            if batch > max(self._options.batches):
                continue
            prompts = [self.prompt(context if tokens == 1 else 64) for _ in range(batch)]
            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                self._started.run(prompts, tokens, drawn=drawn)
            rows = sorted(profiled.key_averages(), key=lambda row: -row.self_device_time_total)
            times = [(row.key[:160], row.count, row.self_device_time_total) for row in rows[:24]]
            say(what="kernels", steps=label, calls_and_us=times)
            spans = [
                (event.name[:60], event.time_range.start, event.time_range.elapsed_us())
                for event in profiled.events()
                if event.device_type == DeviceType.CUDA
            ]
            say(what="timeline", steps=label, start_and_us=timeline(spans))


Span = tuple[str, float, float]
"""A kernel, and when it began and how long it took, in us."""


def timeline(spans: Sequence[Span]) -> list[Span]:
    """Some in their order, from the middle, which begin at 0."""
    ordered = sorted(spans, key=lambda span: span[1])
    shown = ordered[len(ordered) // 2 :][:_SHOWN]
    return [(name, begin - shown[0][1], us) for name, begin, us in shown]


def _sizes(largest: int) -> list[int]:
    """Those of graphs: cc/program/device/step_graphs.h."""
    powers = [2**i for i in range(12)]
    return sorted(size for size in {*powers, *(3 * each for each in powers)} if size <= largest)


def _rate(answers: Sequence[Answer]) -> float:
    """Tokens a second while all requests decode."""
    begin = max(answer.times_s[min(_SETTLED, len(answer.times_s) - 1)] for answer in answers)
    end = min(answer.times_s[-1] for answer in answers)
    counted = sum(begin < each <= end for answer in answers for each in answer.times_s)
    if end <= begin:
        raise RuntimeError("no time in which all requests decode: too few tokens")
    return counted / (end - begin)


def _attempt(what: str, measure: Callable[[], None]) -> bool:
    try:
        measure()
    except Exception as error:  # the next measurement may still work
        say(what="error", of=what, error=f"{type(error).__name__}: {error}")
        return False
    return True


def _planned(started: Started) -> int:
    """Bytes that were planned of the device's memory."""
    built, config = started.built, started.config
    (device,) = [
        found.plugin.open(0)
        for found in find_plugins()
        if found.plugin is not None and config.executor.device.startswith(found.name)
    ]
    plan = ExecutorSizes.of(built, config, "bfloat16", device).plan(built, config)
    return plan.total_bytes - plan.kv_bytes + started.core.budget.kv_bytes


def _free_bytes(device: str) -> int:
    """Of the device's memory, now."""
    for found in find_plugins():
        if found.plugin is not None and device.startswith(found.name):
            return found.plugin.open(0).free_bytes
    raise ConfigError(f"no plugin has {device}")


def measure(options: argparse.Namespace) -> bool:
    """All measurements; whether none failed."""
    imported_s = time.monotonic() - options.started
    free = _free_bytes(options.device)
    found_s = time.monotonic() - options.started
    flags = {
        "max_model_len": max(*options.prompts, options.context) + options.tokens + 1,
        "max_num_seqs": max(options.batches),
        "max_num_batched_tokens": min(_STEP_TOKENS, max(options.prompts)),
        "memory_utilization": _MEMORY_UTILIZATION,
        "cpu_offload_gb": options.cpu_offload_gb,
        "kernel_filter": options.kernel_filter,
        "max_step_ms": 0,  # prompts may make steps longer: all requests are to decode soon
    }
    with start(options.folder, options.device, "bf16", flags) as started:
        anchors = Anchors(started, options)
        started.run([[1]], 1)
        say(
            what="ready",
            imported_s=imported_s,
            device_s=found_s,
            built_s=started.built_s - options.started,
            engine_s=started.started_s - options.started,
            first_token_s=time.monotonic() - options.started,
            weight_bytes=weight_bytes(from_text(started.built.program_text)),
        )
        passed = _attempt("graphs", anchors.graphs)
        used = free - _free_bytes(options.device)
        say(what="memory", planned=_planned(started), used=used)
        first, *others = options.batches
        if (options.folder / "reference.json").exists():
            passed &= _attempt("parity", anchors.parity)
            if others:
                passed &= _attempt("mixed", anchors.mixed)
            for batch in others:
                passed &= _attempt(f"sampled {batch}", lambda n=batch: anchors.sampled(n))
            length = min(options.prompts)
            passed &= _attempt(f"scored {length}", lambda: anchors.scored(length))
        passed &= _attempt(f"decode {first}", lambda: anchors.decode(first))
        for length in options.prompts:
            passed &= _attempt(f"prefill {length}", lambda n=length: anchors.prefill(n))
        for batch in others:
            passed &= _attempt(f"decode {batch}", lambda n=batch: anchors.decode(n))
        _attempt("kernels", anchors.kernels)
    return passed


def main(arguments: list[str]) -> int:
    """Measure; the exit status."""
    return exit_status(lambda: measure(parse(arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
