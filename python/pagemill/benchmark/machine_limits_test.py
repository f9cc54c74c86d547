"""Work and limits of a model that is written down here."""

import math

import pytest

from pagemill.benchmark.machine_limits import MachineLimits, Peak, RunSize, peak_of_kernel
from pagemill.engine.model_work import ModelWork

# As `_native.kernel_choices` says it of a model: hidden size 64, 2 layers, a vocabulary of 1000.
CHOICES = [
    ("embedding", "i32[1021] bf16[1000,64] -> f32[1021,64]", "portable", 1),
    ("linear", "f32[1021,64] q4_1[96,64] f32[96] -> f32[1021,96]", "avx512", 2),
    ("paged_attention", "f32[1021,1,64] bf16[1,2048] -> f32[1021,1,64]", "avx512", 2),
    ("add_rms_norm", "f32[1021,64] f32[1021,64] f32[64] -> f32[1021,64] f32[1021,64]", "a", 2),
    ("select_rows", "f32[1021,64] i32[509] -> f32[509,64]", "portable", 1),
    ("linear", "f32[509,64] bf16[1000,64] -> f32[509,1000]", "amx_bf16", 1),
]
LAYER_BYTES = 2 * 96 * 2 * 20  # two blocks of 32 a row, 20 bytes each
VOCABULARY_BYTES = 1000 * 64 * 2


def test_work_counts_weights_once_and_logits_where_wanted() -> None:
    work = ModelWork.of_choices(CHOICES)
    assert work.weight_bytes == LAYER_BYTES + VOCABULARY_BYTES
    assert work.operations(10, 1) == {
        "avx512": 10 * 2 * 2 * 96 * 64,
        "amx_bf16": 2 * 1000 * 64,
    }
    assert work.kernels == ("amx_bf16", "avx512")


def test_a_token_takes_some_of_the_experts() -> None:
    operands = "f32[1021,64] i32[1021,2] q4_1[8,96,64] f32[8,96] q4_1[8,96,64] -"
    results = "-> f32[1021,2,96] f32[1021,2,96]"
    work = ModelWork.of_choices([("grouped_linear", f"{operands} {results}", "avx512", 3)])
    assert work.weight_bytes == 3 * 2 * 2 * (96 * 2 * 20)
    assert work.operations(10, 1) == {"avx512": 10 * 3 * 2 * 2 * (2 * 96 * 64)}
    one = work.weight_bytes // 2
    # Each of two tokens takes 2 of 8 at random, so 2 + 2 * 6 / 8 in the mean.
    assert work.bytes_of_step(2) == pytest.approx(3.5 * one)
    assert work.bytes_of_step(1000) == pytest.approx(8 * one)


def test_a_rank_has_some_of_the_experts() -> None:
    """4 of 16: a token takes a half of one of them in the mean."""
    route = "f32[1021,16] - -> i32[1021,2] f32[1021,2]"
    operands = "f32[1021,64] i32[1021,2] bf16[4,96,64] - -> f32[1021,2,96]"
    work = ModelWork.of_choices(
        [("moe_route", route, "portable", 1), ("grouped_linear", operands, "avx512", 1)]
    )
    assert work.weight_bytes == 96 * 64 * 2 / 2
    assert work.operations(10, 1) == {"avx512": 10 * 2 * 96 * 64 / 2}
    assert work.bytes_of_step(1000) == pytest.approx(4 * 96 * 64 * 2)


X86: list[Peak] = [
    ("portable", "f32", "registers"),
    ("avx2", "f32", "registers"),
    ("avx512", "f32", "registers"),
    ("avx512_bf16", "bf16", "registers"),
    ("amx_bf16", "bf16", "L1"),
    ("amx_bf16", "bf16", "L2"),
    ("avx2_int16", "int16", "registers"),
    ("avx_vnni", "int8", "registers"),
]


@pytest.mark.parametrize(
    ("kernel", "peak"),
    [
        ("avx512", X86[2]),
        ("avx512_bf16", X86[3]),
        ("avx512_bf16_tall", X86[3]),
        ("avx512_wide", X86[2]),
        ("amx_bf16", X86[4]),
        ("avx2", X86[1]),
        ("avx2_int16", X86[6]),
        ("avx_vnni_int16", X86[7]),
        ("portable", X86[0]),
        ("reference", X86[2]),
    ],
)
def test_a_kernel_is_compared_with_its_own_instructions(kernel: str, peak: Peak) -> None:
    assert peak_of_kernel(kernel, X86) == peak


def _limits() -> MachineLimits:
    return MachineLimits(
        work=ModelWork.of_choices(CHOICES),
        threads=2,
        read_bytes_per_s=1e6,
        peaks={"avx512": 1e6, "amx_bf16": 4e6},
        peak_names={"avx512": X86[2], "amx_bf16": X86[4]},
    )


def test_a_step_is_limited_by_what_takes_longer() -> None:
    limits = _limits()
    reading = (LAYER_BYTES + VOCABULARY_BYTES) / 1e6
    assert limits.read_seconds() == pytest.approx(reading)
    assert limits.step_seconds(1, 1) == pytest.approx(reading)
    assert limits.decode_seconds(1) == limits.read_seconds()
    assert limits.decode_seconds(100) == limits.step_seconds(100, 100) > reading
    multiplying = 100 * 2 * 2 * 96 * 64 / 1e6 + 2 * 1000 * 64 / 4e6
    assert limits.step_seconds(100, 1) == pytest.approx(multiplying)
    assert multiplying > reading
    # Many steps read the weights many times.
    assert limits.prefill_seconds(100, 1, 100) == pytest.approx(multiplying)
    assert limits.prefill_seconds(100, 1, 1) == pytest.approx(100 * reading)


def test_a_run_is_its_prompts_and_its_steps() -> None:
    limits = _limits()
    run = RunSize(requests=8, together=4, prompt_tokens=800, output_len=5)
    expected = limits.prefill_seconds(800, 8, 100) + 2 * 4 * limits.decode_seconds(4)
    assert limits.run_seconds(run, 100) == pytest.approx(expected)
    shown = limits.as_json()
    assert shown["multiply"] == "bf16 amx_bf16, L1"
    assert math.isclose(float(shown["decode_tokens_per_s"]), 1 / limits.read_seconds())
