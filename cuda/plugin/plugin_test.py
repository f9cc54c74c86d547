"""The plugin for NVIDIA GPUs, on a machine without one: it loads and says what is missing."""

import os
from pathlib import Path

import pytest
from pagemill import _native

PLUGIN = os.environ.get("PAGEMILL_TEST_CUDA_PLUGIN", "")
# A bound for the two architectures that are compiled here: less than half of the 150 MiB that a
# release may have, which has four and PTX.
MAX_BYTES = 72 * 2**20
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_CUDA_PLUGIN names no plugin")


def test_it_loads_without_a_driver_and_says_why_there_is_no_gpu() -> None:
    plugin = _native.DevicePlugin(str(Path(PLUGIN).resolve()))
    assert plugin.vendor == "cuda"
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver")
    for ask in (plugin.devices, lambda: plugin.open(0)):
        with pytest.raises(_native.StatusError, match="no GPU can be used: CUDA driver version"):
            ask()


def test_its_size_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(PLUGIN)
    size = path.stat().st_size
    with capsys.disabled():
        print(f"\n{path.name}: {size / 2**20:.1f} MiB")
    assert size <= MAX_BYTES
