"""What a server does with its requests' records, by its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagemill.config import ConfigError, ServeConfig
from pagemill.server.records.access_log import log_request
from pagemill.server.records.layer import OnEnd

if TYPE_CHECKING:
    from pagemill.server.records.traces import RequestTraces


class RecordListeners:
    """The access log and the traces of one process, if they are on."""

    def __init__(self, config: ServeConfig) -> None:
        """Opens them.

        Raises:
            ConfigError: traces need a package that is not installed.
        """
        endpoint = config.traces.otlp_traces_endpoint
        self._traces = None if endpoint is None else _traces_type()(endpoint)
        each: list[OnEnd] = []
        if config.observe.access_log:
            each.append(log_request)
        if self._traces is not None:
            each.append(self._traces.record)
        self.each = tuple(each)

    def close(self) -> None:
        """Sends what waits to be sent; takes a few seconds at most."""
        if self._traces is not None:
            self._traces.close()


def check_listeners(config: ServeConfig) -> None:
    """Raises the ConfigError of `RecordListeners`, before a process that has them is started."""
    if config.traces.otlp_traces_endpoint is not None:
        _traces_type()


def _traces_type() -> type[RequestTraces]:
    try:
        from pagemill.server.records.traces import RequestTraces
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--otlp-traces-endpoint needs `pip install 'pagemill[tracing]'` ({error})"
        ) from error
    return RequestTraces
