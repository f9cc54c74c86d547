"""What this machine allows a model at most, measured in the same run as what is achieved.

A step has to read the weights that its tokens take once, and to multiply its rows by them; it can
do both at the same time, so the limit is whichever takes longer (the roofline). A prompt is limited
by multiplying. The limit of one stream is that of reading alone: where its kernels multiply slower
than memory is read, that is theirs to mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pagemill.config import EngineConfig
from pagemill.engine.model_work import ModelWork, model_work

Peak = tuple[str, str, str]
"""Instruction set, number format, where the operands are: as `_native.present_peaks`."""

_READ_SECONDS = 0.3
_PEAK_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class RunSize:
    """Many requests; `prompt_tokens` in all, without those found in a cache."""

    requests: int
    together: int  # how many run at the same time
    prompt_tokens: int
    output_len: float  # of each, on average


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """What `threads` threads do at most with the work of one model.

    `peaks` has operations per second for each kernel that multiplies, and `peak_names` what the
    kernel was compared with.
    """

    work: ModelWork
    threads: int
    read_bytes_per_s: float
    peaks: Mapping[str, float]
    peak_names: Mapping[str, Peak]

    def read_seconds(self, tokens: float = 1) -> float:
        """Of reading once what a step of so many tokens multiplies."""
        return self.work.bytes_of_step(tokens) / self.read_bytes_per_s

    def multiply_seconds(self, tokens: float, logits_rows: float) -> float:
        """Of the necessary multiplications."""
        operations = self.work.operations(tokens, logits_rows)
        return sum(count / self.peaks[kernel] for kernel, count in operations.items())

    def step_seconds(self, tokens: float, logits_rows: float) -> float:
        """The shortest that a step of so many tokens and rows of logits can take."""
        return max(self.read_seconds(tokens), self.multiply_seconds(tokens, logits_rows))

    def prefill_seconds(self, tokens: float, requests: float, step_tokens: int) -> float:
        """Of prompts of `tokens` tokens in all, in steps of at most `step_tokens` tokens."""
        steps = max(1.0, tokens / step_tokens)
        reading = steps * self.read_seconds(tokens / steps)
        return max(reading, self.multiply_seconds(tokens, requests))

    def decode_seconds(self, requests: int) -> float:
        """Of a step that makes one token for each of so many requests."""
        return self.read_seconds() if requests == 1 else self.step_seconds(requests, requests)

    def run_seconds(self, run: RunSize, step_tokens: int) -> float:
        """Of all prompts, then all steps that decode: what no order of the same work can beat."""
        steps = (run.output_len - 1) * run.requests / run.together
        prefill = self.prefill_seconds(run.prompt_tokens, run.requests, step_tokens)
        return prefill + steps * self.decode_seconds(run.together)

    def as_json(self) -> dict[str, float | str | int]:
        """The measured figures, for reports."""
        kernel = self.work.kernels[0]
        isa, number_format, operands = self.peak_names[kernel]
        return {
            "threads": self.threads,
            "weights_mb": self.work.weight_bytes / 1e6,
            "read_gb_per_s": self.read_bytes_per_s / 1e9,
            "multiply_gop_per_s": self.peaks[kernel] / 1e9,
            "multiply": f"{number_format} {isa}, {operands}",
            "decode_tokens_per_s": 1 / self.read_seconds(),
            "prefill_tokens_per_s": 1 / self.multiply_seconds(1, 0),
        }


def peak_of_kernel(kernel: str, present: Sequence[Peak]) -> Peak:
    """Returns the peak that a kernel of this name is to be compared with.

    It is the one whose instruction set the name begins with, the longest such; of the places that
    operands can come from, L1. A name that begins with none multiplies f32 in the widest registers.
    """
    f32 = [peak for peak in present if peak[1] == "f32"]
    fitting = [peak for peak in present if f"{kernel}_".startswith(f"{peak[0]}_")]
    if not fitting:
        return f32[-1]
    longest = max(len(peak[0]) for peak in fitting)
    places = {peak[2]: peak for peak in fitting if len(peak[0]) == longest}
    return places.get("L1") or next(iter(places.values()))


def measure_limits(config: EngineConfig) -> MachineLimits | None:
    """Measures what limits the configured model; takes about a second. Do it before loading. None
    if no kernels of ours run it.

    Raises:
      ValueError, StatusError: as `plan_model`, or the model multiplies nothing.
    """
    from pagemill import _native

    threads = config.executor.threads or _native.detect_capabilities().cores
    work = model_work(config)
    if work is None:
        return None
    if not work.multiplications:
        raise ValueError("the model has no matrix multiplication: use --no-limits")
    present = _native.present_peaks()
    names = {kernel: peak_of_kernel(kernel, present) for kernel in work.kernels}
    rates = {
        peak: _native.measure_peak(peak, threads=threads, seconds=_PEAK_SECONDS)
        for peak in sorted(set(names.values()))
    }
    return MachineLimits(
        work=work,
        threads=threads,
        read_bytes_per_s=_native.measure_read_bandwidth(
            work.weight_bytes, threads=threads, seconds=_READ_SECONDS
        ),
        peaks={kernel: rates[peak] for kernel, peak in names.items()},
        peak_names=names,
    )


def limits_or_none(
    config: EngineConfig, wanted: bool, note: Callable[[str], None]
) -> MachineLimits | None:
    """Measures where limits are wanted, and says so."""
    if not wanted:
        return None
    note("measuring the machine's limits ...")
    return measure_limits(config)
