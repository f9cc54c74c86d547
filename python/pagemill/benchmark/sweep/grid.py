"""The grid of a sweep: a JSON file of server options and load options, each with its values.

{"server": {"model": "model.gguf", "max-num-seqs": [16, 64]},
 "load": {"request-rate": [1, 4, "inf"], "output-len": 32}}
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagemill.benchmark.serving import LoadConfig, requests_of
from pagemill.config import ConfigError, ServeConfig, build
from pagemill.config.fields import Leaf, leaves, parse_value, unknown_option

MAX_RUNS = 1000
"""Of one sweep. A run takes seconds at least, and a forgotten list multiplies them."""

_MAX_FILE_BYTES = 2**20
_SECTIONS: dict[str, type[Any]] = {"server": ServeConfig, "load": LoadConfig}
_COMMANDS = {"server": "pagemill serve", "load": "pagemill bench serve"}

# Where a server listens and how clients reach it is the sweep's own business, and results hold no
# secrets.
_OWN = {
    "server": {"host", "port", "uds", "root_path", "api_key", "api_key_file", "ssl_certfile"},
    "load": {"url", "client_key", "model_path"},
}

Options = Mapping[str, Any]
"""Name with underscores -> value, as JSON has them: "inf" stands for infinity."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: a load on a server, for the `repeat`-th time."""

    server: Options
    load: Options
    repeat: int

    @property
    def key(self) -> str:
        """Text that no other run has."""
        return json.dumps([self.server, self.load, self.repeat], sort_keys=True)

    @property
    def seed(self) -> int:
        """Seed of the prompts: the same on each server, and another one for each run on it, whose
        prompts would otherwise be in the prefix cache."""
        text = json.dumps([self.load, self.repeat], sort_keys=True)
        return random.Random(text).randrange(2**31)


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations, in the order in which they are measured."""

    servers: list[Options]
    loads: list[Options]
    repeats: int

    @property
    def num_runs(self) -> int:
        """Runs of the whole sweep."""
        return len(self.servers) * len(self.loads) * self.repeats

    def runs(self, server: Options) -> Iterator[Run]:
        """Yields the runs on one server; repeats of a load are apart, so that a disturbance of the
        machine does not affect them all."""
        for repeat in range(self.repeats):
            for load in self.loads:
                yield Run(server, load, repeat)


def read_grid(path: str, repeats: int) -> Grid:
    """Returns the grid in a file, each combination checked.

    Raises:
      ConfigError: the file is not such a grid, an option is unknown or has a wrong value, or there
        are more than MAX_RUNS runs.
    """
    try:
        sections = _parsed(Path(path))
        values = {name: _values(name, sections.get(name, {})) for name in _SECTIONS}
        counts = {name: math.prod(map(len, each.values())) for name, each in values.items()}
        total = math.prod(counts.values()) * repeats
        if total > MAX_RUNS:
            raise ConfigError(
                f"{counts['server']:,} servers x {counts['load']:,} loads x {repeats:,} repeats"
                f" are {total:,} runs, more than {MAX_RUNS:,}: shorten lists, or lower --num-iters"
            )
        return Grid(
            [_checked("server", each) for each in _product(values["server"])],
            [_checked("load", each) for each in _product(values["load"])],
            repeats,
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise ConfigError("larger than 1 MiB")
        whole = json.loads(data, object_pairs_hook=_without_repetition)
    except OSError as error:
        raise ConfigError(error.strerror or str(error)) from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {error.lineno} is not JSON: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError):
        raise ConfigError("it is not JSON") from None
    if not isinstance(whole, dict):
        raise ConfigError('expected an object with "server" and "load"')
    sections = cast(dict[str, Any], whole)
    for name, section in sections.items():
        if name not in _SECTIONS:
            raise ConfigError(f'{name!r} is unknown; expected "server" and "load"')
        if not isinstance(section, dict):
            raise ConfigError(f"{name!r} is not an object of options and their values")
    return sections


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ConfigError(f"{name!r} is given twice")
        found[name] = value
    return found


def _values(section: str, given: dict[str, Any]) -> dict[str, list[Any]]:
    """The values of each option, in their order."""
    known = {leaf.name: leaf for leaf in leaves(_SECTIONS[section])}
    found: dict[str, list[Any]] = {}
    for key, value in given.items():
        name = key.removeprefix("--").replace("-", "_")
        if name in _OWN[section]:
            raise ConfigError(f"{section}: {key!r} cannot be chosen: the sweep sets it")
        if name not in known:
            hint = unknown_option(name, sorted(known.keys() - _OWN[section]))
            hint = hint or f"; see `{_COMMANDS[section]} --help`"
            raise ConfigError(f"{section}: unknown option {key!r}{hint}")
        if name in found:
            raise ConfigError(f"{section}: {key!r} is given twice")
        found[name] = _listed(section, known[name], value)
    return found


def _listed(section: str, leaf: Leaf, value: Any) -> list[Any]:
    values = cast(list[Any], value if isinstance(value, list) else [value])
    if not values:
        raise ConfigError(f"{section}: {leaf.flag} has an empty list of values")
    found: list[Any] = []
    for each in values:
        try:
            plain = _plain(parse_value(leaf, each))
        except ConfigError as error:
            raise ConfigError(f"{section}: {error}") from None
        if plain in found:
            raise ConfigError(f"{section}: {leaf.flag} has {each!r} twice")
        found.append(plain)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast(tuple[Any, ...], value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _product(values: dict[str, list[Any]]) -> Iterator[Options]:
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _checked(section: str, options: Options) -> Options:
    try:
        config = build(_SECTIONS[section], options)
        if isinstance(config, LoadConfig) and config.prompts.dataset is not None:
            requests_of(config, lambda _: 0)  # no server is there yet that counts tokens
    except ConfigError as error:
        raise ConfigError(f"{section}: {error}") from None
    return options
