"""The plugin for Intel GPUs, on a machine without one: its devices, and why there is none."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = os.environ.get("PAGEMILL_TEST_SYCL_PLUGIN", "")
CPU_PLUGIN = os.environ.get("PAGEMILL_TEST_SYCL_CPU_PLUGIN", "")
CPU_RUNTIME = os.environ.get("PAGEMILL_TEST_SYCL_CPU_RUNTIME", "")
MAX_BYTES = 2**20  # most of it the text of kernels
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_SYCL_PLUGIN names no plugin")

# The runtime reads its environment once, so each case has a process.
_PROCESS = """
import json, sys
from pagemill import _native

plugin = _native.DevicePlugin(sys.argv[1])
result = {"vendor": plugin.vendor}
try:
    result["devices"] = [[each.architecture, each.memory_bytes > 0] for each in plugin.devices()]
    result["opened"] = plugin.open(0).name
    plugin.open(len(result["devices"]))
except _native.StatusError as error:
    result["error"] = error.message
print(json.dumps(result))
"""


def load_plugin(path: str, opencl: str = "") -> dict[str, Any]:
    """Returns what the plugin said in a process in which this is the device of OpenCL, if any."""
    environment = {name: each for name, each in os.environ.items() if name != "OCL_ICD_FILENAMES"}
    if opencl:
        environment["OCL_ICD_FILENAMES"] = str(Path(opencl).resolve())
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, str(Path(path).resolve())],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("opencl", ["", CPU_RUNTIME], ids=["no-driver", "driver-of-the-cpu"])
def test_without_a_gpu_it_loads_and_says_what_to_install(opencl: str) -> None:
    if Path("/dev/dri").exists():
        pytest.skip("there may be a GPU")
    said = load_plugin(PLUGIN, opencl)
    assert said["vendor"] == "sycl"
    assert said["error"] == (
        "the SYCL runtime finds no Intel GPU; install its driver: intel-opencl-icd, or libze1 and"
        " libze-intel-gpu1"
    )


def test_the_cpu_is_the_device_of_another_plugin() -> None:
    said = load_plugin(CPU_PLUGIN, CPU_RUNTIME)
    assert said["vendor"] == "sycl_cpu"
    assert said["devices"] == [["OpenCL", True]] * 2  # the same, for two ranks
    assert said["opened"]
    assert said["error"] == "SYCL has the devices 0 to 1"


def test_its_size_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(PLUGIN)
    size = path.stat().st_size
    with capsys.disabled():
        print(f"\n{path.name}: {size / 2**20:.1f} MiB")
    assert size <= MAX_BYTES
