"""Buckets of distances: single ones, and those that grow with the logarithm."""

import numpy as np

from pagemill.models.encoders.deberta_v2 import log_buckets


def test_buckets_grow_with_the_logarithm():
    # 8 buckets: distances 0 to 4 alone; then 4 + 3 log(d / 4) / log(19 / 4), rounded up: 4 (19 /
    # 4)^(1 / 3) is 6.7, and 4 (19 / 4)^(2 / 3) is 11.3.
    buckets = log_buckets(np.arange(24), 8, 20)
    assert buckets.tolist() == [0, 1, 2, 3, 4, 5, 5, *[6] * 5, *[7] * 8, *[8] * 4]
