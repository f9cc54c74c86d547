"""Rounded matrices are near, and as near as their formats allow."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.quantization.at_load.e4m3 import to_e4m3
from pagemill.quantization.at_load.formats import FORMATS
from pagemill.quantization.at_load.rounding import Floats, Rounding
from pagemill.quantization.at_load.testing.decoded import decoded
from pagemill.weights.read import e4m3_values

# Squared errors of normally distributed weights, as shares of squares. Measured: 6.8e-4 and 6.9e-4
# (3 bits of mantissa), 2.8e-5 (the largest of 32 numbers is -128), 4.8e-5 (that of 256 is 127),
# 6.1e-3.
ERRORS = {
    "fp8": 8e-4,
    "fp8_per_block": 8e-4,
    "int8": 3.5e-5,
    "int8_w8a8": 6e-5,
    "int4": 7e-3,
}


def values_of(rounding: Rounding, matrix: Floats) -> Floats:
    """What the parts of a matrix stand for, after their sizes have been checked."""
    rounded, parts = rounding.round(matrix), rounding.parts(matrix.shape[1])
    found = dict(zip((part.suffix for part in parts), rounded, strict=True))
    for part, tensor in zip(parts, rounded, strict=True):
        element = {"F32": 4, "I32": 4, "F16": 2}.get(part.dtype, 1)
        rows = -(-len(matrix) // part.row_step)
        assert tensor.shape[0] == rows
        assert tensor.nbytes == rows * part.columns * element
    return decoded(found, matrix.shape)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 60.0])
def test_errors_are_those_of_the_format(name: str, size: float) -> None:
    rounding = FORMATS[name]
    matrix = np.random.default_rng(7).standard_normal((300, 256), dtype=np.float32)
    matrix *= np.float32(size)
    rest = values_of(rounding, matrix) - matrix
    assert np.mean(rest**2) <= ERRORS[name] * np.mean(matrix**2)


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_and_single_numbers_stay(name: str) -> None:
    """Also in rows whose other numbers are as large as f16's scales hold, and in rows of zeros."""
    matrix = np.zeros((136, 160), np.float32)
    matrix[3, 40], matrix[4, 40], matrix[9, :32] = 96.0, -96.0, 2.0**-30
    values = values_of(FORMATS[name], matrix)
    assert values[3, 40] == pytest.approx(96, rel=1e-3)
    assert values[4, 40] == pytest.approx(-96, rel=1e-3)
    assert np.isfinite(values).all()
    matrix[3, 40] = matrix[4, 40] = values[3, 40] = values[4, 40] = 0
    np.testing.assert_allclose(values, matrix, atol=2.0**-29)


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_rows_of_broken_groups_are_refused(name: str) -> None:
    assert "not a multiple of 32" in FORMATS[name].refusal((64, 80))
    assert not FORMATS[name].refusal((63, 96))
    assert not FORMATS["fp8"].refusal((63, 80))


def test_stacks_that_blocks_would_cut_are_refused() -> None:
    """Where their second half begins."""
    assert "not a multiple of 256" in FORMATS["fp8_per_block"].refusal((5, 384, 96))
    assert not FORMATS["fp8_per_block"].refusal((5, 512, 96))
    assert not FORMATS["fp8_per_block"].refusal((384, 96))


def test_e4m3_is_the_nearest_with_ties_to_even() -> None:
    random = np.random.default_rng(3)
    known = e4m3_values()[:127]
    halves = (known[1:] + known[:-1]) / 2
    near = np.concatenate([np.nextafter(halves, 0), np.nextafter(halves, 1e9)])
    numbers = np.concatenate([known, halves, near, random.uniform(-500, 500, 9999), [1e9, 1e-30]])
    numbers = np.concatenate([numbers, -numbers]).astype(np.float32)
    found = e4m3_values()[to_e4m3(numbers)]
    distances = np.abs(np.abs(numbers.astype(np.float64))[:, None] - known)
    np.testing.assert_array_equal(np.abs(np.abs(numbers) - np.abs(found)), distances.min(axis=1))
    assert (np.signbit(found) == np.signbit(numbers)).all()
    assert (to_e4m3(halves.astype(np.float32)) % 2 == 0).all()
