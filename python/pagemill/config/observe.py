"""Options of logs, traces and metrics."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from pagemill.config.fields import ConfigError, Range, check, option


@dataclass(frozen=True, slots=True)
class ObserveConfig:
    """Logging: what is written to standard error, and how."""

    log_level: str = option(
        "info",
        "Lowest severity of messages that are logged.",
        allowed=("debug", "info", "warning", "error"),
    )
    log_format: str = option(
        "text",
        "How messages are written. json: an object on each line, for programs that collect logs.",
        allowed=("text", "json"),
    )
    access_log: bool = option(
        False,
        "Log a line for each HTTP request at its end: its id, path, status, key, tenant, tokens and"
        " times; never a prompt, an output or a key. Probes and scrapes of metrics that succeed"
        " are left out.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class TracesConfig:
    """Traces: a span for each request."""

    otlp_traces_endpoint: str | None = option(
        None,
        "URL of a collector of OpenTelemetry traces, such as http://localhost:4318/v1/traces: each"
        " request is a span there, with its tokens and times, never a prompt, an output or a key."
        " Needs `pip install 'pagemill[tracing]'`. Default: no traces.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: the endpoint is not the URL of an HTTP server.
        """
        check(self)
        url = self.otlp_traces_endpoint
        if url is None:
            return
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"--otlp-traces-endpoint: {url!r} is not a URL; write"
                " http://localhost:4318/v1/traces"
            )


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Metrics: what `/metrics` exposes."""

    metrics_compatibility: str = option(
        "none",
        "Expose metrics under the names of another server, too, so that dashboards and autoscalers"
        " made for it work. vllm: as `vllm:num_requests_running` and the like.",
        allowed=("none", "vllm"),
    )
    max_metrics_tenants: int = option(
        100,
        "Tenants, and API keys, that have metrics of their own. Further ones are counted together"
        " as `other`.",
        allowed=Range(0, 10**4),
    )
    enable_mfu_metrics: bool = option(
        False,
        "Estimate the operations and the bytes of weights of all steps, for the utilization of the"
        " device. A model that kernels of libraries run as a whole has no such metrics.",
    )
    metrics_plugin: tuple[str, ...] = option(
        (),
        "Name of an installed plugin that adds metrics of requests; may be repeated"
        " (docs/plugins.md). Default: none.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
