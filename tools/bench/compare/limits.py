"""The machine's limits for any engine, with the best instructions."""

from __future__ import annotations

import dataclasses

from pagemill import _native
from pagemill.benchmark.machine_limits import MachineLimits, measure_limits
from pagemill.config import EngineConfig

_PEAK_SECONDS = 0.1


def measure_best(config: EngineConfig, *, integers: bool) -> MachineLimits:
    """Returns the limits of the configured model, with the fastest instructions of this machine.

    Integer instructions count only if the weights are quantized; tiles are loaded from L1.

    Raises:
      ValueError, StatusError: as `measure_limits`.
    """
    limits = measure_limits(config)
    rates = {
        peak: _native.measure_peak(peak, threads=limits.threads, seconds=_PEAK_SECONDS)
        for peak in _native.present_peaks()
        if (integers or peak[1] != "int8") and peak[2] != "L2"
    }
    fastest = max(rates, key=lambda peak: rates[peak])
    return dataclasses.replace(
        limits,
        peaks=dict.fromkeys(limits.peaks, rates[fastest]),
        peak_names=dict.fromkeys(limits.peak_names, fastest),
    )
