"""ALiBi (arXiv 2108.12409): the slope of each head."""

from __future__ import annotations

from pagemill.models.base import ModelConfigError

_MAX_HEADS = 4096


def alibi_slopes(heads: int, *, most: float = 8.0) -> tuple[float, ...]:
    """2^-(most i / n), i from 1 to n = `heads`. If that is no power of two, n is the next one, and
    the slopes are every second of n, and then of the others as many as there are heads left.

    Raises:
        ModelConfigError: there are too many heads.
    """
    if heads > _MAX_HEADS:
        raise ModelConfigError(f"{heads} heads are more than the {_MAX_HEADS} supported with ALiBi")
    count = 1 << (heads - 1).bit_length()
    slopes = [2.0 ** -(most * i / count) for i in range(1, count + 1)]
    return tuple(slopes if count == heads else (slopes[1::2] + slopes[::2])[:heads])
