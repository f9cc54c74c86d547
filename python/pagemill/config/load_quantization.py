"""How a model's matrices are quantized when it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pagemill.config.fields import ConfigError, did_you_mean

_FLAG = "--quantization-config"
_KEYS = ("ignore", "targets")
_MAX_ENTRIES = 4096
_MAX_TARGETS = 256
_MAX_CHARS = 1024  # of one


@dataclass(frozen=True, slots=True)
class LoadQuantization:
    """`format` is a name of `pagemill.quantization.at_load.formats`; files lie in `folder`.
    Modules that `ignored` lists stay as they are: names, or patterns that begin with "re:".
    Modules that an entry of `targets` lists have its format; the first such entry counts. With
    `only_experts`, only experts are quantized."""

    format: str
    folder: str
    ignored: tuple[str, ...] = ()
    targets: tuple[tuple[str, str], ...] = ()
    only_experts: bool = False


def ignored_modules(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that `--quantization-config` lists as `ignore`.

    Raises:
        ConfigError: it has another key, or its list is none of names and patterns.
    """
    _check_keys(config)
    entries = config.get("ignore", ())
    listed = cast("list[object]", entries) if isinstance(entries, list | tuple) else [None]
    if len(listed) > _MAX_ENTRIES or not all(
        isinstance(entry, str) and 0 < len(entry) <= _MAX_CHARS for entry in listed
    ):
        raise ConfigError(
            f'{_FLAG}: "ignore" must be a list of at most {_MAX_ENTRIES} names of modules, or'
            f' patterns that begin with "re:", of at most {_MAX_CHARS} characters each'
        )
    return tuple(cast("list[str]", listed))


def target_formats(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The modules that `--quantization-config` lists as `targets`, each with its format.

    Raises:
        ConfigError: it has another key, or its object is none of modules and formats.
    """
    _check_keys(config)
    targets = config.get("targets", {})
    entries = cast("Mapping[str, object]", targets) if isinstance(targets, Mapping) else {"": None}
    if len(entries) > _MAX_TARGETS or not all(
        0 < len(entry) <= _MAX_CHARS and isinstance(name, str) for entry, name in entries.items()
    ):
        raise ConfigError(
            f'{_FLAG}: "targets" must be an object of at most {_MAX_TARGETS} names of modules, or'
            f' patterns that begin with "re:", of at most {_MAX_CHARS} characters each, and their'
            ' formats, such as {"down_proj": "int8"}'
        )
    return tuple((entry, str(name)) for entry, name in entries.items())


def _check_keys(config: Mapping[str, Any]) -> None:
    for key in config:
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise ConfigError(
                f"{_FLAG}: there is no key {key!r:.60}{did_you_mean(key, list(_KEYS))}"
                f"; known: {known}"
            )
