"""Limits from fake measurements."""

import pytest
from pagemill import _native
from pagemill.benchmark.machine_limits import MachineLimits
from pagemill.config import EngineConfig
from pagemill.engine.model_work import ModelWork, Multiplication

from tools.bench.compare import limits

RATES = {
    ("avx512", "f32", "registers"): 100.0,
    ("amx_bf16", "bf16", "L2"): 900.0,
    ("amx_bf16", "bf16", "L1"): 400.0,
    ("amx_int8", "int8", "L1"): 800.0,
}


@pytest.mark.parametrize(("integers", "rate"), [(False, 400.0), (True, 800.0)])
def test_the_fastest_instructions_that_fit_the_weights_count(
    integers: bool, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = ModelWork((Multiplication("avx512", 10, 1000, True),))
    measured = MachineLimits(work, 3, 1e9, {"avx512": 50.0}, {"avx512": next(iter(RATES))})
    monkeypatch.setattr(limits, "measure_limits", lambda _: measured)
    monkeypatch.setattr(_native, "present_peaks", lambda: list(RATES))
    monkeypatch.setattr(_native, "measure_peak", lambda peak, threads, seconds: RATES[peak])
    found = limits.measure_best(EngineConfig(), integers=integers)
    assert found.peaks == {"avx512": rate}
    assert RATES[found.peak_names["avx512"]] == rate
    assert found.read_bytes_per_s == 1e9
