"""The HTTP server."""

import re
from dataclasses import dataclass, field

from pagemill.config.batches import BatchApiConfig
from pagemill.config.content_log import ContentLogConfig
from pagemill.config.data_parallel import DataParallelConfig
from pagemill.config.fields import ConfigError, Range, check, option
from pagemill.config.http import ConnectionConfig, OriginConfig, TlsConfig
from pagemill.config.media import MediaConfig
from pagemill.config.other_servers import check_key

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """HTTP: address, keys and limits."""

    host: str = option(
        "127.0.0.1",
        "Address to listen on. 0.0.0.0 = every IPv4 interface, :: = every IPv6 interface; set"
        " --api-key if others can reach it.",
    )
    port: int = option(
        8000, "Port to listen on; 0 = any free port, which is printed.", allowed=Range(0, 65535)
    )
    grpc_port: int | None = option(
        None,
        "Port for gRPC, on the same address, with the same calls, keys and limits"
        " (docs/grpc.md); 0 = any free port, which is printed. Needs the extra pagemill[grpc]."
        " Default: no gRPC.",
        allowed=Range(0, 65535),
    )
    uds: str | None = option(
        None,
        "Path of a Unix socket to listen on, instead of --host and --port. All users of the machine"
        " can connect, as to a port, unless the mode of its folder forbids it.",
    )
    root_path: str = option(
        "",
        "Path that a proxy in front adds before the server's own, such as /llm. Requests with and"
        " without it are served alike, and /openapi.json names it.",
    )
    middleware: tuple[str, ...] = option(
        (),
        "Import path of ASGI middleware of your own: a class, which is called with the app, or an"
        " async function (request, call_next); may be repeated, the first sees a request first. It"
        " runs before keys are checked (docs/http.md). Default: none.",
    )
    endpoint_plugin: tuple[str, ...] = option(
        (),
        "Name of an installed plugin whose routes are served, below /plugins/NAME/; may be repeated"
        " (docs/plugins.md). Default: none.",
    )
    api_key: tuple[str, ...] = option(
        (),
        "A key that requests must carry as `Authorization: Bearer KEY` or `X-API-Key: KEY`; may be"
        " repeated. Protects every route except /health, /ready, /ping and the playground's files."
        " Default: PAGEMILL_API_KEY, else no key.",
        kind="secret",
    )
    api_key_file: str | None = option(
        None,
        "File with such keys, one a line, in addition to --api-key; empty lines and lines that"
        " begin with # are ignored. A .yaml file has names, tenants, scopes and limits as well:"
        " `NAME: {key: KEY, tenant: TENANT, scopes: [inference, tools, metrics, admin]}`, or"
        " `sha256` instead of `key`. It is read again when it changes. Unlike an argument, a file"
        " is not visible in the list of processes.",
    )
    admin_address: str | None = option(
        None,
        "Where the operator's routes are (pause, sleep, weights, cache): the path of a Unix socket,"
        " which only this user can open, or HOST:PORT, which needs a key with the scope admin."
        " Default: nowhere.",
    )
    profile_dir: str | None = option(
        None,
        "Folder for profiles of the engine's steps, which the operator's route /start_profile"
        " begins (--admin-address). Default: profiles are refused.",
    )
    trust_tenant_header: bool = option(
        False,
        "Let the header X-Tenant-Id name a request's tenant, instead of its API key. For a proxy"
        " in front that sets the header and drops that of clients.",
    )
    max_body_bytes: int = option(
        32 * 2**20,
        "Largest request body; a larger one is refused with HTTP status 413.",
        unit="bytes",
        allowed=Range(1024, 2**34),
    )
    response_store: str | None = option(
        None,
        "File for stored responses of /v1/responses, which later requests can continue and read"
        " back, and for conversations. Default: a temporary file, which is removed when the server"
        " ends.",
    )
    response_store_bytes: int = option(
        256 * 2**20,
        "Largest size of that file; what was used longest ago is evicted. 0 = nothing is stored.",
        unit="bytes",
        allowed=Range(0, 2**46),
    )
    mcp_servers: str | None = option(
        None,
        "YAML file with the MCP servers whose tools requests of /v1/responses can let the model"
        " call: `NAME: {url: URL}` or `NAME: {command: [PROGRAM, ...]}`, with `allowed_tools`,"
        " `require_approval`, `timeout`, `max_result_bytes`, `max_concurrent_calls`, and files with"
        " secrets: `header_files: {HEADER: FILE}`, `env_files: {VARIABLE: FILE}`. Default: none.",
    )
    playground: bool = option(
        True,
        "Serve the playground, a page for chats, at /, and a page of the HTTP API at /docs. Their"
        " files need no API key; the pages ask for one.",
    )
    stream_interval: int = option(
        1,
        "Tokens per stream event; the first and the last token are never delayed. A request can"
        " set a larger number with its field of the same name.",
        unit="tokens",
        allowed=Range(1, 10**6),
    )
    enable_per_request_metrics: bool = option(
        False,
        "Say where the time of a request went: in `metrics` of chats and completions, of streams in"
        " the event with `usage`, and in the header Server-Timing of responses that are not"
        " streamed.",
    )
    request_timeout: float = option(
        0.0,
        "Longest time of a request, from its arrival to its last token; then HTTP status 504, in a"
        " stream an error event. A request can set a shorter one with its field `timeout`. 0 = no"
        " limit.",
        unit="s",
        allowed=Range(0, 86400),
    )
    realtime_idle_timeout: float = option(
        300.0,
        "A session of /v1/realtime in which nothing happens for so long is closed.",
        unit="s",
        allowed=Range(1, 86400),
    )
    shutdown_timeout: float = option(
        30.0,
        "After SIGTERM, the time that running requests may continue before they are aborted.",
        unit="s",
        allowed=Range(0, 86400),
    )
    isolate_engine: bool = option(
        False,
        "Run the engine in a process of its own, which is started again if it ends or is stuck:"
        " requests that ran fail, and the server goes on.",
    )
    engine_stuck_timeout: float = option(
        600.0,
        "An engine that has requests and makes no progress for so long is stuck: /health answers"
        " 503 (of several engines, if all are; else it names those), and with --isolate-engine the"
        " engine is killed and started again. Must exceed the longest step, which on a small"
        " machine with a large model may take minutes.",
        unit="s",
        allowed=Range(1, 86400),
    )
    api_server_count: int = option(
        1,
        "Processes that speak HTTP. With 2 or more they share the port and the engine, which runs"
        " in a process of its own as with --isolate-engine. For machines with cores to spare and"
        " many short responses.",
        unit="processes",
        allowed=Range(1, 64),
    )
    data_parallel: DataParallelConfig = field(default_factory=DataParallelConfig)
    content_log: ContentLogConfig = field(default_factory=ContentLogConfig)
    media: MediaConfig = field(default_factory=MediaConfig)
    batches: BatchApiConfig = field(default_factory=BatchApiConfig)
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    origins: OriginConfig = field(default_factory=OriginConfig)

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: a key is empty or cannot travel in an HTTP header, options exclude each
            other, or gRPC's TLS lacks an option that is set.
        """
        check(self)
        if self.grpc_port is not None:
            check_grpc_tls(self.tls)
        if not _ROOT_PATH.fullmatch(self.root_path):
            raise ConfigError("--root-path: write it as /llm or /a/b, without a slash at its end")
        for key in self.api_key:
            check_key("--api-key", key)
        if self.admin_address is not None:
            admin_port(self.admin_address)

    @property
    def has_supervisor(self) -> bool:
        """Whether engines and HTTP are in processes of their own."""
        engines = self.data_parallel
        several = max(self.api_server_count, engines.data_parallel_size) > 1
        return self.isolate_engine or several or engines.spans_machines


def admin_port(address: str) -> tuple[str, int] | None:
    """Host and port of an address of the operator's routes; None for the path of a socket.

    Raises:
      ConfigError: it is neither.
    """
    if "/" in address:
        return None
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 2**16:
        raise ConfigError(
            f"--admin-address {address}: it is HOST:PORT, or a path that has a slash in it"
        )
    return host.strip("[]"), int(port)


def check_grpc_tls(tls: TlsConfig) -> None:
    """Checks that gRPC can do what `tls` says.

    Raises:
      ConfigError: it cannot.
    """
    for flag, is_set in (
        ("--ssl-ciphers", tls.ssl_ciphers is not None),
        ("--ssl-minimum-version TLSv1_3", tls.ssl_minimum_version == "TLSv1_3"),
        ("--ssl-cert-reqs 1", tls.ssl_cert_reqs == 1),
    ):
        if is_set:
            raise ConfigError(
                f"{flag} does not work with --grpc-port, whose TLS lacks it: leave one of them"
                " out, or put TLS in front of the server"
            )
