"""Buckets of distances: single ones, ranges that grow, and both sides."""

import pytest

from pagemill.models.base import ModelConfigError
from pagemill.models.encoders.distance_buckets import bucket_of_each_distance


def test_buckets_of_both_sides():
    # 12 buckets, 6 on each side: distances 0 to 2 alone, and three ranges up to 12.
    buckets = bucket_of_each_distance(12, 12)
    behind, zero, ahead = buckets[:12][::-1], buckets[12], buckets[13:]
    assert zero == 0
    assert behind == [1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 5]
    assert ahead == [6 + bucket for bucket in behind]


def test_buckets_of_what_is_behind():
    # 6 buckets: distances 0 to 2 alone, and three ranges up to 12.
    buckets = bucket_of_each_distance(6, 12, causal=True)
    assert buckets[12::-1] == [0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 5]
    assert buckets[13:] == [0] * 12


@pytest.mark.parametrize(("buckets", "reach"), [(3, 8), (32, 8), (32, 5000)])
def test_buckets_that_do_not_fit(buckets: int, reach: int):
    with pytest.raises(ModelConfigError, match="buckets up to a distance of"):
        bucket_of_each_distance(buckets, reach)
