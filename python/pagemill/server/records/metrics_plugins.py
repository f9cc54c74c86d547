"""Metrics of installed packages, which `--metrics-plugin` names (docs/plugins.md).

def open_metrics(registry: CollectorRegistry) -> OnEnd:
    requests = Counter("my_requests", "Requests by tenant.", ["tenant"], registry=registry)
    return lambda record: requests.labels(record.tenant).inc()

[project.entry-points."pagemill.metrics"]
my_metrics = "my_package:open_metrics"
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from pagemill.config import ConfigError
from pagemill.config.plugins import find_plugin
from pagemill.server.records.record import OnEnd, RequestRecord

GROUP = "pagemill.metrics"
_OPTION = "--metrics-plugin"
_LOGGER = logging.getLogger("pagemill.server")

OpenMetrics = Callable[[CollectorRegistry], OnEnd]
"""An entry point: called once in each process that serves HTTP, when its model is loaded. It makes
metrics in the registry, and returns what gets the record of each request at its end."""


def check_metrics_plugins(names: Sequence[str]) -> None:
    """Imports the plugins `names`.

    Raises:
        ConfigError: a package lacks one, or it cannot be imported.
    """
    for name in names:
        find_plugin(GROUP, name, _OPTION)


def open_metrics_plugins(names: Sequence[str], registry: CollectorRegistry) -> tuple[OnEnd, ...]:
    """What gets the records of requests, of the plugins `names`.

    Raises:
        ConfigError: see `check_metrics_plugins`; or a plugin fails, for example because a metric
            exists already.
    """
    opened: list[OnEnd] = []
    for name in names:
        make: OpenMetrics = find_plugin(GROUP, name, _OPTION)
        try:
            opened.append(_Guarded(name, make(registry)).take)
        except Exception as error:  # a plugin may raise anything
            raise ConfigError(f"{_OPTION} {name}: {type(error).__name__}: {error}") from error
    return tuple(opened)


class _Guarded:
    """Leaves a plugin out once it has raised something: a request does not fail by it."""

    def __init__(self, name: str, on_end: OnEnd) -> None:
        self._name = name
        self._on_end: OnEnd | None = on_end

    def take(self, record: RequestRecord) -> None:
        """Passes a record on."""
        if self._on_end is None:
            return
        try:
            self._on_end(record)
        except Exception:  # a plugin may raise anything
            _LOGGER.exception("%s %s failed, and gets no more records", _OPTION, self._name)
            self._on_end = None
