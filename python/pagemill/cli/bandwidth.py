"""The speed limit of decoding: a model's weights are read once for each token or step."""

import time
from concurrent.futures import ThreadPoolExecutor

_PASSES = 12
_MAX_BYTES = 2**31


def read_bandwidth(size_bytes: int, threads: int) -> float:
    """Returns how many bytes per second `threads` threads read of a block of `size_bytes`.

    The size matters: what fits a cache is read faster. The best of a dozen passes counts, for a
    limit is what the machine can do undisturbed. Takes about 10 ms per 100 MB and pass.
    """
    import numpy as np

    size = max(1, min(size_bytes, _MAX_BYTES))
    # Written, so that the pages exist; a maximum over bytes is as fast as memory on one core.
    block = np.ones(size, dtype=np.uint8)
    parts = np.array_split(block, max(1, threads))
    best = float("inf")
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(_PASSES):
            begin = time.perf_counter()
            list(pool.map(np.maximum.reduce, parts))
            best = min(best, time.perf_counter() - begin)
    return size / best
