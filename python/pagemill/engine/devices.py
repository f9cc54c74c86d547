"""The devices that plugins offer, and which one an engine runs on.

A plugin is a shared object (cc/program/device/device_plugin.h). Its package names it by an entry
point of the group `pagemill.devices`, whose value is an attribute that has the path:

    [project.entry-points."pagemill.devices"]
    cuda = "pagemill_cuda:PLUGIN"

PAGEMILL_DEVICE_PLUGINS has paths of further ones.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, MachineShare, read_environment
from pagemill.config.env import set_default
from pagemill.config.plugins import entries
from pagemill.engine.device_libraries import open_libraries
from pagemill.engine.encoder import MediaSizes
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.runner.build import BuiltModel

_ONE_ENGINE = MachineShare()
_GROUP = "pagemill.devices"
_LOGGER = logging.getLogger("pagemill.engine")


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """A plugin and its devices, or in `reason` why it has none.

    `name` is its vendor, or what names it if it cannot be loaded.
    """

    name: str
    plugin: _native.DevicePlugin | None = None
    devices: Sequence[_native.FoundDevice] = ()
    reason: str = ""


@functools.lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> list[EntryPoint]:
    """Those of packages in `path`, which is sys.path. All are looked through, in 24 ms: once."""
    return entries(_GROUP)


def find_plugins() -> list[FoundPlugin]:
    """Loads all plugins and asks them for their devices."""
    # Intel's runtime compiles kernels in seconds to a minute. It reads this when it is first used.
    set_default("SYCL_CACHE_PERSISTENT", "1")
    return [
        *(_find(path) for path in read_environment().device_plugins),
        *(_find_installed(entry) for entry in _installed(tuple(sys.path))),
    ]


def choose_device(
    built: BuiltModel,
    config: EngineConfig,
    weights_dtype: str,
    draft: BuiltModel | None = None,
) -> _native.Device | None:
    """The device that runs `built`, opened; None: the CPU. Ranks of a tensor-parallel group have
    this device and those behind it.

    Args:
        built: the model's program.
        config: everything about the engine.
        weights_dtype: see `ExecutorSizes.of`.
        draft: the model that guesses tokens for `built`, if one does.

    Raises:
        ConfigError: `--device` names a device that does not exist, or that cannot run this model
            with these options; or what runs it is the CPU, and weights should be offloaded.
    """
    wanted = config.executor.device
    if wanted == "cpu":
        _require_nothing_offloaded(config, "--device cpu")
        return None
    if wanted != "auto":
        if missing := _missing(built, config, wanted.partition(":")[0]):
            raise ConfigError(f"--device {wanted} {missing}, or --device cpu")
        return open_device(wanted, config.executor.tensor_parallel_size, config.share)
    reasons: list[str] = []
    for found in find_plugins():
        if found.plugin is None or not found.devices:
            reasons.append(f"{found.name}: {found.reason}")
            continue
        if missing := _missing(built, config, found.name):
            reasons.append(f"{found.name} {missing}")
            continue
        ranks = config.executor.tensor_parallel_size
        if len(found.devices) < config.share.count * ranks:
            reasons.append(f"{found.name} has fewer devices than ranks")
            continue
        try:
            device = found.plugin.open(config.share.index * ranks)
            sizes = ExecutorSizes.of(built, config, weights_dtype, device)
            sizes.plan(built, config)
            MediaSizes.of(built, sizes, config).memory()
            if draft is not None:
                sizes.plan_draft(built, draft, config)
        except _native.StatusError as error:
            reasons.append(f"{found.name}: {error.message}")
            continue
        _LOGGER.info("device: %s", describe(device))
        return device
    reason = "; ".join(reasons) or "no device plugin is installed"
    _require_nothing_offloaded(config, reason)
    _LOGGER.info("device: CPU (%s)", reason)
    return None


def describe(device: _native.Device) -> str:
    """Such as "cuda:0, NVIDIA H200"."""
    return f"{device.vendor}:{device.index}, {device.name}"


def _find(path: str, name: str | None = None) -> FoundPlugin:
    """The plugin at `path`, which is called `name` if it cannot be loaded."""
    try:
        plugin = _native.DevicePlugin(path)
    except _native.StatusError as error:
        return FoundPlugin(name or path, reason=error.message)
    try:
        devices = plugin.devices()
    except _native.StatusError as error:
        return FoundPlugin(plugin.vendor, plugin, reason=error.message)
    open_libraries(plugin.vendor)
    return FoundPlugin(plugin.vendor, plugin, devices)


def _find_installed(entry: EntryPoint) -> FoundPlugin:
    try:
        path = str(entry.load())
    except Exception as error:  # of the package's own code
        return FoundPlugin(entry.name, reason=f"{entry.value} cannot be imported: {error}")
    return _find(path, entry.name)


def open_device(wanted: str, ranks: int = 1, share: MachineShare = _ONE_ENGINE) -> _native.Device:
    """The device that `--device` names, if there are as many from it on as all engines have ranks.
    Engine `share.index` has the ones behind those of the engines before it.

    Raises:
        ConfigError: there is no such device, or not as many.
    """
    vendor, _, first = wanted.partition(":")
    needed = share.count * ranks
    found = find_plugins()
    for each in found:
        if each.name != vendor:
            continue
        if each.plugin is None or not each.devices:
            raise ConfigError(f"--device {wanted}: {each.reason}; --device cpu runs without it")
        if int(first or 0) >= len(each.devices):
            raise ConfigError(
                f"--device {wanted}: {vendor} has the devices 0 to {len(each.devices) - 1}"
            )
        if int(first or 0) + needed > len(each.devices):
            engines = f"--data-parallel-size {share.count} with " if share.count > 1 else ""
            raise ConfigError(
                f"--device {wanted} and what is behind it are too few:"
                f" {engines}--tensor-parallel-size {ranks} needs {needed} devices, {vendor} has 0"
                f" to {len(each.devices) - 1}"
            )
        try:
            return each.plugin.open(int(first or 0) + share.index * ranks)
        except _native.StatusError as error:
            raise ConfigError(
                f"--device {wanted}: {error.message}; --device cpu runs without it"
            ) from None
    known = [each.name if each.plugin else f"{each.name} ({each.reason})" for each in found]
    raise ConfigError(
        f"--device {wanted}: no plugin {vendor} is installed"
        + (f", only {', '.join(known)}" if known else f": `pip install pagemill-{vendor}`")
    )


def _require_nothing_offloaded(config: EngineConfig, reason: str) -> None:
    if config.executor.offload_bytes:
        raise ConfigError(
            f"--cpu-offload-gb {config.executor.cpu_offload_gb:g} is for a device, and the model"
            f" runs on the CPU ({reason}), whose weights are in the host's memory anyway: leave it"
            " out"
        )


def _missing(built: BuiltModel, config: EngineConfig, vendor: str) -> str:
    """What devices of `vendor` cannot do yet, as the condition that is not met; "" if nothing."""
    if config.executor.executor != "native":
        return "needs --executor native"
    if built.module is not None:
        return f"needs native support of the model: {built.architecture} has none"
    dtype = config.cache.kv_cache_dtype
    if vendor == "sycl" and dtype in ("int4", "k8v4"):
        return f"needs --kv-cache-dtype int8, fp8, bf16 or f32: it has no kernels for {dtype}"
    if config.executor.pipeline_parallel_size > 1:
        return "needs --pipeline-parallel-size 1: stages run on CPUs"
    if config.nodes.nnodes > 1:
        return "needs --nnodes 1: ranks of several machines run on CPUs"
    return ""
