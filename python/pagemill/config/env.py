"""The only module that reads or sets the environment.

| name | meaning |
|---|---|
| PAGEMILL_API_KEY | key(s) of the server, separated by commas; `--api-key` wins |
| PAGEMILL_DEVICE_PLUGINS | paths of device plugins besides those installed, separated by `:` |
| PAGEMILL_CACHE_DIR | folder for downloaded models and packed weights; `--cache-dir` wins |
| XDG_CACHE_HOME | parent of the cache folder if neither is given; else `~/.cache` |

A plugin that was built from a checkout has no metadata to be found by, hence its variable.

VLLM_API_KEY is looked at in one case: a server that has no key does not start with it, for it
would be open to all where a key is expected.

Other programs read their own variables (proxies, `HF_TOKEN`, `PIP_INDEX_URL`): pip and
huggingface_hub, which download models, use the same environment.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagemill.config.fields import ConfigError

_API_KEY = "PAGEMILL_API_KEY"
_CACHE_DIR = "PAGEMILL_CACHE_DIR"
_DEVICE_PLUGINS = "PAGEMILL_DEVICE_PLUGINS"
_XDG_CACHE = "XDG_CACHE_HOME"
_FOREIGN_KEY = "VLLM_API_KEY"
NAMES = (_API_KEY, _CACHE_DIR, _DEVICE_PLUGINS, _XDG_CACHE)


@dataclass(frozen=True, slots=True)
class Environment:
    """Settings from the environment. `api_keys` is empty if no key is set."""

    api_keys: tuple[str, ...]
    cache_dir: Path
    device_plugins: tuple[str, ...] = ()


def set_default(name: str, value: str) -> None:
    """Sets a variable that a library reads when it is imported, unless the user has set it."""
    os.environ.setdefault(name, value)


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Returns the settings in `variables`; None means the process's environment.

    Raises:
      ConfigError: a value cannot be used, or a name is a near miss of one of ours (a misspelt
        PAGEMILL_API_KEY would otherwise leave a server open).
    """
    env = os.environ if variables is None else variables
    for name in env:
        if name.startswith("PAGEMILL_") and name not in NAMES:
            close = difflib.get_close_matches(
                name, [_API_KEY, _CACHE_DIR, _DEVICE_PLUGINS], n=1, cutoff=0.85
            )
            if close:
                raise ConfigError(f"environment variable {name}: did you mean {close[0]}?")
    return Environment(_api_keys(env), _cache_dir(env), _device_plugins(env))


def refuse_foreign_key(variables: Mapping[str, str] | None = None) -> None:
    """Raises ConfigError if another server's variable has a key: for a server without keys."""
    env = os.environ if variables is None else variables
    if env.get(_FOREIGN_KEY):
        raise ConfigError(
            f"{_FOREIGN_KEY} is not read, and this server has no key: set {_API_KEY} or --api-key"
            f" to require one, or unset {_FOREIGN_KEY} to serve without"
        )


def cache_folder(cache_dir: str | None) -> Path:
    """Returns `cache_dir` if it is given (`--cache-dir`), else the environment's folder."""
    return Path(cache_dir).expanduser() if cache_dir else read_environment().cache_dir


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment with `variables` in it, for a process that it starts."""
    return {**os.environ, **variables}


def _api_keys(env: Mapping[str, str]) -> tuple[str, ...]:
    if _API_KEY not in env:
        return ()
    keys = tuple(key.strip() for key in env[_API_KEY].split(","))
    if not all(keys):
        raise ConfigError(f"{_API_KEY} holds an empty key; unset it to serve without one")
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise ConfigError(f"{_API_KEY}: a key is printable ASCII, for it travels in an HTTP header")
    return keys


def _device_plugins(env: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(path for path in env.get(_DEVICE_PLUGINS, "").split(":") if path)


def _cache_dir(env: Mapping[str, str]) -> Path:
    for name, below in ((_CACHE_DIR, ""), (_XDG_CACHE, "pagemill")):
        value = env.get(name, "")
        if not value:
            continue
        path = Path(value).expanduser()
        if not path.is_absolute():
            if name == _XDG_CACHE:
                continue  # the XDG specification requires relative paths to be ignored
            raise ConfigError(f"{name}={value!r} is not an absolute path")
        return path / below
    try:
        return Path.home() / ".cache" / "pagemill"
    except RuntimeError:
        raise ConfigError(f"no home folder is known: set {_CACHE_DIR} or --cache-dir") from None
