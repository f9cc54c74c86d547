"""What the device can do at most, by torch: copying, and cuBLASLt's products, on random data.

    python -m tools.gpu.limits DEVICE SIZE

Bytes of a copy are counted when read and when written.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from tools.gpu.records import say

_REPEATS = 20
_TOKENS = (1, 64, 256)  # rows of products with one matrix, as decode steps have


def _seconds(call: Callable[[], object], device: str) -> float:
    """Median time of a call, all of its work on the device included."""
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(_REPEATS):
        _synchronize(device)
        begun = time.monotonic()
        call()
        _synchronize(device)
        times.append(time.monotonic() - begun)
    return statistics.median(times)


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure(device: str, size: int) -> None:
    """Say the limits, with square matrices of `size`."""
    cuda = device.startswith("cuda")
    name = torch.cuda.get_device_name(device) if cuda else device
    a, b = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    data = torch.randint(0, 255, (16 * size * size,), dtype=torch.uint8, device=device)
    copy = torch.empty_like(data)
    host = torch.ones(size * size, dtype=torch.uint8)
    host = host.pin_memory() if cuda else host
    to_device = _seconds(lambda: copy[: host.nbytes].copy_(host, non_blocking=True), device)
    product = _seconds(lambda: a @ b, device)
    say(
        what="limits",
        device=name,
        torch=torch.__version__,
        copy_bytes_per_s=2 * data.nbytes / _seconds(lambda: copy.copy_(data), device),
        upload_bytes_per_s=host.nbytes / to_device,
        flop_per_s=2 * size**3 / product,
    )
    # The products of a step by cuBLASLt, to hold those of this tree against.
    for rows in _TOKENS:
        x = torch.randn(rows, size, device=device).bfloat16()
        matrices = [torch.randn(size, size, device=device).bfloat16() for _ in range(4)]

        def products(x: torch.Tensor = x, matrices: list[torch.Tensor] = matrices) -> None:
            for matrix in matrices:
                torch.mm(x, matrix.T)

        bytes_read = 2 * size * size * len(matrices)
        rate = bytes_read / _seconds(products, device)
        say(what="product", rows=rows, size=size, bytes_per_s=rate)


def main(arguments: list[str]) -> int:
    """Measure; the exit status."""
    measure(arguments[0], int(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
