"""`pagemill route`: several servers behind one address."""

import re
from dataclasses import dataclass, field

from pagemill.config.fields import ConfigError, Range, check, option
from pagemill.config.http import ConnectionConfig, OriginConfig, TlsConfig
from pagemill.config.observe import ObserveConfig
from pagemill.config.other_servers import check_url

_PLUGIN_PATH = re.compile(r"/plugins(/[A-Za-z0-9._~-]+){2,}")
POLICIES = ("least_loaded", "prefix_aware", "round_robin", "session")


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Routing: the servers, and which of them gets a request."""

    server: tuple[str, ...] = option(
        (), "URL of a server, such as http://127.0.0.1:8001 or https://host:8001; may be repeated."
    )
    server_ca_file: str | None = option(
        None,
        "Certificates of authorities, in PEM, that sign those of servers with https. Default: the"
        " system's.",
    )
    server_certfile: str | None = option(
        None,
        "Certificate of the router, in PEM, for servers with https that want one"
        " (--ssl-cert-reqs).",
    )
    server_keyfile: str | None = option(
        None,
        "Private key of --server-certfile, in PEM, without password. Default: in the same file.",
    )
    policy: str = option(
        "least_loaded",
        "Which server gets a request. least_loaded: the one with the fewest unfinished requests."
        " prefix_aware: the one whose cache has the longest prefix of the prompt; needs --model."
        " round_robin: each in turn. session: always the same one for the same session.",
        allowed=POLICIES,
    )
    session_header: str = option(
        "X-Session-Id",
        "Header that names a request's session, for --policy session. Without it, the field"
        " `session_id` or `prompt_cache_key` of the body does.",
    )
    model: str | None = option(
        None,
        "The servers' model, whose tokenizer and chat template are read (no weights): a .gguf"
        " file, a directory, or a hub id, as for `pagemill serve`.",
    )
    chat_template: str | None = option(
        None, "The servers' --chat-template, if they have one: a file, or the template itself."
    )
    chat_template_content_format: str = option(
        "auto",
        "The servers' --chat-template-content-format.",
        allowed=("auto", "string", "openai"),
    )
    tokenizer_mode: str = option("auto", "The servers' --tokenizer-mode.")
    trust_control_tokens: bool = option(False, "The servers' --trust-control-tokens.")
    block_size: int = option(16, "The servers' --block-size.", unit="tokens", allowed=Range(1, 256))
    prefix_caching_hash_algo: str = option(
        "xxh3-128",
        "The servers' --prefix-caching-hash-algo.",
        allowed=("xxh3-128", "sha256"),
    )
    max_prefix_blocks: int = option(
        2**20,
        "KV blocks whose server is remembered, of all servers together; 8 bytes each.",
        unit="blocks",
        allowed=Range(1, 2**32),
    )
    server_key_file: str | None = option(
        None,
        "File with the API key that the router itself sends to servers to read their KV events; it"
        " needs the scope admin. Clients' keys are passed on with their requests.",
    )
    connect_timeout: float = option(
        2.0, "Time limit to connect to a server.", unit="s", allowed=Range(0.01, 3600)
    )
    read_timeout: float = option(
        600.0,
        "Longest time without a byte from a server that answers a request.",
        unit="s",
        allowed=Range(0.1, 86400),
    )
    probe_interval: float = option(
        1.0,
        "Time between two probes of a server's /ready.",
        unit="s",
        allowed=Range(0.01, 3600),
    )
    probe_timeout: float = option(
        5.0,
        "Time limit of a probe: a server that does not answer gets no requests.",
        unit="s",
        allowed=Range(0.01, 3600),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: no server is given, one twice, or one that is not a URL; or the policy lacks
            the model.
        """
        check(self)
        if not self.server:
            raise ConfigError("--server is missing: name each server, --server http://HOST:PORT")
        for url in self.server:
            check_url("--server", url)
        if self.server_keyfile is not None and self.server_certfile is None:
            raise ConfigError("--server-keyfile needs --server-certfile")
        if not any(url.startswith("https:") for url in self.server):
            for flag, value in (
                ("--server-ca-file", self.server_ca_file),
                ("--server-certfile", self.server_certfile),
            ):
                if value is not None:
                    raise ConfigError(f"{flag} needs a --server whose URL begins with https://")
        if len(set(self.server)) < len(self.server):
            raise ConfigError("--server: the same server is named twice")
        if self.policy == "prefix_aware" and self.model is None:
            raise ConfigError(
                "--policy prefix_aware needs --model: prefixes are compared as the model's tokens"
            )


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """HTTP: address, keys and limits of what is in front of servers."""

    host: str = option(
        "127.0.0.1",
        "Address to listen on. 0.0.0.0 = every IPv4 interface, :: = every IPv6 interface.",
    )
    port: int = option(
        8080, "Port to listen on; 0 = any free port, which is printed.", allowed=Range(0, 65535)
    )
    api_key_file: str | None = option(
        None,
        "File with API keys, as for `pagemill serve`: without one of them no request is read. The"
        " servers check the key again. Default: PAGEMILL_API_KEY, else only the servers check.",
    )
    max_body_bytes: int = option(
        32 * 2**20,
        "Largest request body; a larger one is refused with HTTP status 413.",
        unit="bytes",
        allowed=Range(1024, 2**34),
    )
    pass_path: tuple[str, ...] = option(
        (),
        "Path of a plugin's endpoint, such as /plugins/alpaca/shout, POST requests for which are"
        " passed on as well; may be repeated. The plugin is installed where the models run.",
    )
    playground: bool = option(
        True,
        "Serve the playground, a page for chats, at /, and a page of the HTTP API at /docs. Their"
        " files need no API key; the pages ask for one.",
    )
    shutdown_timeout: float = option(
        30.0,
        "After SIGTERM, the time that running requests may continue before they are aborted.",
        unit="s",
        allowed=Range(0, 86400),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: a path is none that a plugin may have, or is named twice.
        """
        check(self)
        for path in self.pass_path:
            if not _PLUGIN_PATH.fullmatch(path):
                raise ConfigError(
                    f"--pass-path: {path!r} is not the path of a plugin's endpoint; write"
                    " /plugins/NAME/..., without parameters"
                )
        if len(set(self.pass_path)) < len(self.pass_path):
            raise ConfigError("--pass-path: the same path is named twice")


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """All options of `pagemill route`."""

    router: RouterConfig
    listen: ListenConfig = field(default_factory=ListenConfig)
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    origins: OriginConfig = field(default_factory=OriginConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)
