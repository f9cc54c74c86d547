"""Endpoints of installed packages, which `--endpoint-plugin` names (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pagemill.config import ConfigError
from pagemill.config.plugins import find_plugin
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.table import ENDPOINTS

GROUP = "pagemill.endpoints"
PREFIX = "/plugins/"
_OPTION = "--endpoint-plugin"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_TRANSPORTS = (Transport.JSON, Transport.PATH)


def plugin_endpoints(names: Sequence[str]) -> tuple[Endpoint, ...]:
    """The rows of the plugins `names`, which are entry points of installed packages.

    Raises:
        ConfigError: a package lacks one, it cannot be imported, or a row is none that a plugin may
            have.
    """
    rows = [(name, row) for name in names for row in _rows(name)]
    known, routes = {row.name for row in ENDPOINTS}, set[tuple[str, str]]()
    for name, row in rows:
        _check(name, row)
        route = (row.method, row.path)
        if row.name in known:
            raise _refused(name, f"there are two endpoints with the name {row.name!r}")
        if route in routes:
            raise _refused(name, f"there are two endpoints for {row.method} {row.path}")
        known.add(row.name)
        routes.add(route)
    return tuple(row for _, row in rows)


def _rows(name: str) -> Sequence[Endpoint]:
    found = find_plugin(GROUP, name, _OPTION)
    rows = cast(Sequence[Any], found) if isinstance(found, tuple | list) else (found,)
    for row in rows:
        if not isinstance(row, Endpoint):
            raise _refused(name, f"it has a {type(row).__name__} in place of an Endpoint")
    return rows


def _check(name: str, row: Endpoint) -> None:
    prefix = f"{PREFIX}{name}/"
    if not row.path.startswith(prefix):
        raise _refused(name, f"the path {row.path} does not begin with {prefix}")
    if row.method not in _METHODS:
        raise _refused(name, f"{row.path} has the method {row.method!r}, not {_METHODS}")
    if row.scope is Scope.OPEN:
        raise _refused(name, f"{row.path} is open: its scope must be `KEY` or one that keys grant")
    if row.transport not in _TRANSPORTS:
        raise _refused(name, f"{row.path} has the transport {row.transport.name}, not JSON or PATH")
    if row.transport is Transport.JSON and "{" in row.path:
        raise _refused(name, f"{row.path} has parameters, and takes its fields from JSON")
    try:
        for load in (row.load, row.request_type, row.response_type, row.event_type):
            load()
    except Exception as error:  # importing a plugin may raise anything
        what = f"{row.path} cannot be imported: {type(error).__name__}: {error}"
        raise _refused(name, what) from error


def _refused(name: str, what: str) -> ConfigError:
    return ConfigError(f"{_OPTION} {name}: {what}")
