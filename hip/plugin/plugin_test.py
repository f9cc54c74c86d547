"""The plugin for AMD GPUs: over no HIP runtime, and over a fake one that records what is called."""

import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = os.environ.get("PAGEMILL_TEST_HIP_PLUGIN", "")
FAKE = os.environ.get("PAGEMILL_TEST_FAKE_HIP", "")
# A bound for the three architectures that are compiled here: a release has five.
MAX_BYTES = 48 * 2**20
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_HIP_PLUGIN names no plugin")

# A plugin and its runtime stay in a process, so each case has its own. The fake runtime has the
# name of the real one, which the plugin opens.
_PROCESS = """
import ctypes, json, sys
from pagemill import _native

plugin_path, fake_path, version, devices, architecture = sys.argv[1:]
if fake_path:
    fake = ctypes.CDLL(fake_path)
    fake.fake_hip_configure(int(version), int(devices), architecture.encode())
plugin = _native.DevicePlugin(plugin_path)
result = {"vendor": plugin.vendor}
try:
    result["devices"] = [[each.name, each.architecture] for each in plugin.devices()]
    result["opened"] = plugin.open(0).name
except _native.StatusError as error:
    result["error"] = error.message
if fake_path:
    result["kernels"] = fake.fake_hip_num_kernels()
    result["launches"] = fake.fake_hip_num_launches()
print(json.dumps(result))
"""


def load_plugin(
    fake: str = FAKE, version: int = 70100000, devices: int = 1, architecture: str = "gfx942"
) -> dict[str, Any]:
    """Returns what the plugin said in a process with this runtime; no `fake`: with none."""
    arguments = [str(Path(PLUGIN).resolve()), fake and str(Path(fake).resolve())]
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, *arguments, str(version), str(devices), architecture],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_without_rocm_it_loads_and_names_the_library_that_is_missing() -> None:
    if ctypes.util.find_library("amdhip64") or Path("/opt/rocm").exists():
        pytest.skip("ROCm is installed")
    said = load_plugin(fake="")
    assert said["vendor"] == "hip"
    assert said["error"] == (
        "no GPU can be used: ROCm's libamdhip64.so.7 is not installed; install ROCm 6.3 or newer"
    )


def test_an_older_rocm_is_refused_by_its_version() -> None:
    said = load_plugin(version=60200000)
    assert said["error"] == (
        "no GPU can be used: ROCm's HIP runtime is of version 6.2; install ROCm 6.3 or newer"
    )
    assert said["kernels"] == 0


def test_without_a_driver_it_says_so() -> None:
    if Path("/dev/kfd").exists():
        pytest.skip("there is a driver")
    said = load_plugin(devices=0)
    assert "the amdgpu driver is not loaded, for there is no /dev/kfd" in said["error"]


@pytest.mark.parametrize("architecture", ["gfx942", "gfx1100", "gfx1201"])
def test_it_lists_gpus_and_runs_a_kernel_of_theirs(architecture: str) -> None:
    said = load_plugin(devices=2, architecture=architecture)
    assert said["devices"] == [["fake GPU", architecture]] * 2
    assert said["opened"] == "fake GPU"
    assert said["kernels"] > 300  # of every op, in three types of activations
    assert said["launches"] == 1  # that of an empty kernel


def test_a_gpu_without_code_is_refused_with_what_there_is_code_for() -> None:
    said = load_plugin(architecture="gfx1030")
    assert said["devices"] == [["fake GPU", "gfx1030"]]
    assert said["error"].startswith(
        "fake GPU (gfx1030) does not run kernels that are compiled for gfx942, gfx1100, gfx1201: "
    )
    assert said["launches"] == 0


def test_its_size_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(PLUGIN)
    size = path.stat().st_size
    with capsys.disabled():
        print(f"\n{path.name}: {size / 2**20:.1f} MiB")
    assert size <= MAX_BYTES
