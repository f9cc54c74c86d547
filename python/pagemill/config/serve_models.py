"""`pagemill serve-models`: several models behind one address, and the file that lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagemill.config.data_parallel import DataParallelConfig
from pagemill.config.engine import ServeConfig
from pagemill.config.fields import (
    ConfigError,
    Range,
    build,
    check,
    flatten,
    leaves,
    option,
    unknown_option,
)
from pagemill.config.http import ConnectionConfig, OriginConfig, TlsConfig
from pagemill.config.observe import ObserveConfig
from pagemill.config.route import ListenConfig
from pagemill.config.yaml_file import read_yaml

_MAX_NAME_CHARS = 256
_OF_ALL = (ConnectionConfig, ListenConfig, ObserveConfig, OriginConfig, TlsConfig)
_OF_ONE_ADDRESS = ("api_key", "grpc_port", "model", "root_path", "served_model_name", "uds")
_OF_A_SUPERVISOR = (
    "api_server_count",
    "isolate_engine",
    *(leaf.name for leaf in leaves(DataParallelConfig)),
)


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """Models: the file that lists them, and how many are loaded at a time."""

    models: str | None = option(
        None,
        "YAML file with the models: `NAME: {model: MODEL}`, with `aliases`, `options` (those of"
        " `pagemill serve`), `keep` and `idle-timeout`. Requests that name no model get the first.",
        kind="positional",
    )
    max_models: int | None = option(
        None,
        "Models that are loaded at the same time, at most. Default: as many as fit in the memory.",
        allowed=Range(1, 1024),
    )
    memory_utilization: float = option(
        0.8,
        "Share of the host's memory available at the start (a container's limit counts) that all"
        " loaded models together may use. A model that does not fit beside the others makes the one"
        " stop that is idle and was used least recently. It is also the --memory-utilization of"
        " models that state none.",
        allowed=Range(0.01, 1.0),
    )
    idle_timeout: float = option(
        600.0,
        "A model without requests for so long is stopped, unless its entry in the file says"
        " otherwise. 0 = never.",
        unit="s",
        allowed=Range(0, 10**7),
    )
    load_timeout: float = option(
        600.0,
        "Longest time for a model to be fetched, and again to be loaded; then it has failed.",
        unit="s",
        allowed=Range(0.1, 86400),
    )
    wait_timeout: float = option(
        120.0,
        "Longest time that a request waits for its model to be loaded, also while all others are"
        " busy; then HTTP status 503.",
        unit="s",
        allowed=Range(0.1, 86400),
    )
    max_waiting: int = option(
        256,
        "Requests that wait for models to be loaded, at most; further ones get HTTP status 503.",
        unit="requests",
        allowed=Range(1, 10**6),
    )
    spare_process: bool = option(
        True,
        "Keep a process that has imported all that a model's server needs, for the model that is"
        " loaded next. It takes some 100 MB until then.",
    )
    read_timeout: float = option(
        600.0,
        "Longest time without a byte from a model's process that answers a request.",
        unit="s",
        allowed=Range(0.1, 86400),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: there is no file.
        """
        check(self)
        if self.models is None:
            raise ConfigError("name the file that lists the models: pagemill serve-models FILE")


@dataclass(frozen=True, slots=True)
class ServeModelsConfig:
    """All options of `pagemill serve-models`."""

    models: ModelsConfig
    listen: ListenConfig = field(default_factory=ListenConfig)
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    origins: OriginConfig = field(default_factory=OriginConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)


@dataclass(frozen=True, slots=True)
class HostedModelConfig:
    """A model of the file. `names[0]` is its own, the others are aliases. `serve` are the options
    of its server, without an address. `idle_timeout_s` 0: it is never stopped for being idle."""

    names: tuple[str, ...]
    serve: ServeConfig
    keep: bool
    idle_timeout_s: float

    @property
    def name(self) -> str:
        """The one in responses."""
        return self.names[0]

    @property
    def all_names(self) -> tuple[str, ...]:
        """What requests may name: the names, and the adapters of the options."""
        return (*self.names, *(name for name, _ in self.serve.engine.lora.modules))


class _Entry(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """A model as the file has it."""

    model: str
    aliases: list[str] = []
    options: dict[str, Any] = {}
    keep: bool = False
    idle_timeout: Annotated[float, Meta(ge=0, le=10**7)] | None = None


def read_models(config: ServeModelsConfig) -> tuple[HostedModelConfig, ...]:
    """The models of the file, in its order.

    Raises:
      ConfigError: the file cannot be read, lists no model, one twice or one that cannot be served,
        or more models are kept than may be loaded.
    """
    path = config.models.models
    assert path is not None
    file = f"models file {path}"
    models = tuple(
        _model(f"{file}, model {name!r}", name, entry, config)
        for name, entry in read_yaml(path, "models file").items()
    )
    if not models:
        raise ConfigError(f"{file} lists no model; write `NAME: {{model: MODEL}}`")
    names = [name for model in models for name in model.all_names]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file}: the name {name!r} stands for two models")
    most, kept = config.models.max_models, sum(model.keep for model in models)
    if most is not None and kept > most - (kept < len(models)):
        raise ConfigError(
            f"--max-models {most}: {kept} models are kept, so no other one could be loaded; raise"
            " it, or keep fewer"
        )
    return models


def _model(where: str, name: str, raw: Any, config: ServeModelsConfig) -> HostedModelConfig:
    try:
        entry = msgspec.convert(raw, _Entry)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    names = (name, *entry.aliases)
    for each in names:
        if not each or not each.isprintable() or len(each) > _MAX_NAME_CHARS:
            raise ConfigError(
                f"{where}: {each[:_MAX_NAME_CHARS]!r} is no name; use 1 to {_MAX_NAME_CHARS}"
                " printable characters"
            )
    try:
        serve = _options(entry.options, {"model": entry.model, "served_model_name": names}, config)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    idle_s = config.models.idle_timeout if entry.idle_timeout is None else entry.idle_timeout
    return HostedModelConfig(names, serve, entry.keep, idle_s)


def _options(
    options: Mapping[str, Any], own: Mapping[str, Any], config: ServeModelsConfig
) -> ServeConfig:
    """The options of one model; `own` are those that its entry has besides."""
    shared = {leaf.name for kind in _OF_ALL for leaf in leaves(kind)}
    known = {leaf.name for leaf in leaves(ServeConfig)}
    values: dict[str, Any] = {"memory_utilization": config.models.memory_utilization}
    for key, value in options.items():
        name = key.replace("-", "_")
        if name in shared or name in _OF_ONE_ADDRESS:
            raise ConfigError(
                f"option {key!r} cannot differ between models: the address, names, keys and limits"
                " of HTTP are those of the command and of the entry"
            )
        if name in _OF_A_SUPERVISOR:
            raise ConfigError(f"option {key!r}: each model has one process")
        if name not in known:
            raise ConfigError(f"unknown option {key!r}{unknown_option(name, list(known))}")
        values[name] = value
    of_all = {**flatten(config.connections), **flatten(config.listen)}
    given = {name: value for name, value in of_all.items() if name in known}
    serve = build(ServeConfig, {**values, **own, **given, "playground": False})
    observe = replace(config.observe, access_log=False)  # the command's own has each request
    return replace(serve, observe=observe)
