"""Tests of pagemill.config.quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagemill.config.quantities import format_bytes, parse_bytes, parse_count


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("16", 16), ("1k", 1000), ("1K", 1024), ("25.6k", 25600), ("2M", 2**21)]
    + [("-1", -1), (" 4 k ", 4000), ("1.5K", 1536), ("3m", 3_000_000)],
)
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("4GiB", 2**32), ("4G", 2**32), ("4GB", 4 * 10**9), ("512", 512), ("1.5KiB", 1536)]
    + [("7B", 7), ("100MB", 10**8)],
)
def test_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "text", ["", "k", "1kk", "1.5", "1.0001K", "1e3", "0x10", "1,000", "9" * 19]
)
def test_what_is_not_a_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_count(text)


@pytest.mark.parametrize("text", ["4Gib", "1.5B", "GiB", "1 PiB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_bytes(text)


@given(st.integers(-(10**15), 10**15))
def test_plain_integers_are_exact(value: int) -> None:
    assert parse_count(str(value)) == value
    assert parse_bytes(str(value)) == value


def test_sizes_read_well() -> None:
    assert format_bytes(1) == "1 B"
    assert format_bytes(98_362_432) == "93.8 MiB"
    assert format_bytes(3 * 2**29) == "1.50 GiB"
    assert format_bytes(5 * 2**42) == "20480.00 GiB"
