"""What is said of devices where no plugin, or a broken one, is installed; tests/emulated_gpu runs
models with one that works."""

import importlib.metadata
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.devices import choose_device, find_plugins
from pagemill.runner.build import BuiltModel

# What is looked at before a device is opened.
_BUILT = cast(BuiltModel, SimpleNamespace(module=None, encoder=None, architecture="Tiny"))


def _choose(device: str) -> object:
    config = build(EngineConfig, {"model": "unread", "device": device})
    return choose_device(_BUILT, config, "float32")


def test_auto_is_the_cpu_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pagemill.engine")
    assert _choose("auto") is None
    assert caplog.messages == ["device: CPU (no device plugin is installed)"]


def test_a_vendor_without_a_plugin_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no plugin cuda is installed: .*pagemill-cuda"):
        _choose("cuda:1")


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
