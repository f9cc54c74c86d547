"""What is said of devices where no plugin, or a broken one, is installed; tests/emulated_gpu runs
models with one that works."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, MachineShare, build
from pagemill.engine.devices import FoundPlugin, choose_device, find_plugins, open_device
from pagemill.runner.build import BuiltModel

# What is looked at before a device is opened.
_BUILT = cast(BuiltModel, SimpleNamespace(module=None, encoders=(), architecture="Tiny"))


def _choose(device: str, **options: str) -> object:
    config = build(EngineConfig, {"model": "unread", "device": device, **options})
    return choose_device(_BUILT, config, "float32")


def test_auto_is_the_cpu_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pagemill.engine")
    assert _choose("auto") is None
    assert caplog.messages == ["device: CPU (no device plugin is installed)"]


def test_a_vendor_without_a_plugin_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no plugin cuda is installed: .*pagemill-cuda"):
        _choose("cuda:1")


@pytest.mark.parametrize("dtype", ["int4", "k8v4"])
def test_a_vendor_without_kernels_for_a_cache_type_is_refused(dtype: str) -> None:
    with pytest.raises(ConfigError, match=f"--device sycl needs .*: it has no kernels for {dtype}"):
        _choose("sycl", kv_cache_dtype=dtype)
    with pytest.raises(ConfigError, match="no plugin cuda is installed"):
        _choose("cuda", kv_cache_dtype=dtype)


@pytest.mark.parametrize("device", ["", "CUDA", "cuda:", "cuda:x", "cuda:1000", "cpu:0:1"])
def test_what_names_no_device_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="--device"):
        build(EngineConfig, {"model": "unread", "device": device})


def test_a_plugin_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = tmp_path / "plugin.so"
    text.write_text("no shared object")
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", f"{text}:{tmp_path}/none.so")
    wrong, missing = find_plugins()
    assert wrong.plugin is None and str(text) in wrong.reason
    assert "there is no device plugin" in missing.reason
    assert _choose("auto") is None
    with pytest.raises(ConfigError, match="no shared object|plugin.so"):
        _choose("cuda")


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("cuda", "no_such_package:PLUGIN", "pagemill.devices")
    monkeypatch.setattr("pagemill.engine.devices._installed", lambda path: [entry])
    (found,) = find_plugins()
    assert (found.name, found.plugin) == ("cuda", None)
    assert "no_such_package:PLUGIN cannot be imported" in found.reason


def _four_devices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A plugin with four devices, of which none can be opened; the numbers of those tried."""
    opened: list[int] = []

    def open_nothing(index: int) -> None:
        opened.append(index)
        error = _native.StatusError("there is no such GPU")
        error.message = "there is no such GPU"
        raise error

    plugin = cast(_native.DevicePlugin, SimpleNamespace(open=open_nothing))
    devices = cast(list[_native.FoundDevice], [SimpleNamespace()] * 4)
    found = [FoundPlugin("cuda", plugin, devices)]
    monkeypatch.setattr("pagemill.engine.devices.find_plugins", lambda: found)
    return opened


@pytest.mark.parametrize(
    ("device", "ranks", "share", "index"),
    [
        ("cuda", 1, MachineShare(3, 4), 3),
        ("cuda", 2, MachineShare(1, 2), 2),
        ("cuda:1", 1, MachineShare(1, 3), 2),
        ("auto", 2, MachineShare(1, 2), 2),
    ],
)
def test_engines_have_the_devices_behind_those_of_others(
    monkeypatch: pytest.MonkeyPatch, device: str, ranks: int, share: MachineShare, index: int
) -> None:
    opened = _four_devices(monkeypatch)
    options = {"model": "unread", "device": device, "tensor_parallel_size": ranks}
    config = replace(build(EngineConfig, options), share=share)
    if device == "auto":
        assert choose_device(_BUILT, config, "float32") is None
    else:
        with pytest.raises(ConfigError, match="no such GPU"):
            choose_device(_BUILT, config, "float32")
    assert opened == [index]


def test_too_few_devices_for_all_engines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pagemill.engine")
    opened = _four_devices(monkeypatch)
    with pytest.raises(ConfigError, match="--data-parallel-size 2 with --tensor-parallel-size 4"):
        open_device("cuda", 4, MachineShare(0, 2))
    # The first engine takes none either: all would not be equal.
    config = replace(build(EngineConfig, {"model": "unread"}), share=MachineShare(0, 5))
    assert choose_device(_BUILT, config, "float32") is None
    assert "fewer devices than ranks" in caplog.text
    assert opened == []
