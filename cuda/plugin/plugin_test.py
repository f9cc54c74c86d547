"""The plugin for NVIDIA GPUs, on a machine without one: it loads and says what is missing."""

import os
from pathlib import Path

import pytest
from pagemill import _native

PLUGIN = Path(os.environ.get("PAGEMILL_TEST_CUDA_PLUGIN", "none"))
MAX_BYTES = 150 * 2**20
pytestmark = pytest.mark.skipif(not PLUGIN.is_file(), reason="PAGEMILL_TEST_CUDA_PLUGIN is no file")


def test_it_loads_without_a_driver_and_says_why_there_is_no_gpu() -> None:
    plugin = _native.DevicePlugin(str(PLUGIN.resolve()))
    assert plugin.vendor == "cuda"
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver")
    for ask in (plugin.devices, lambda: plugin.open(0)):
        with pytest.raises(_native.StatusError, match="no GPU can be used: CUDA driver version"):
            ask()


def test_its_size_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    size = PLUGIN.stat().st_size
    with capsys.disabled():
        print(f"\n{PLUGIN.name}: {size / 2**20:.1f} MiB")
    assert size <= MAX_BYTES
