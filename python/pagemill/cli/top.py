"""`pagemill top`: what running servers do."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagemill.config import ConfigError, Range, option, read_environment
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser

if TYPE_CHECKING:
    from pagemill.observe.top.followed import FollowedServer

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class TopConfig:
    """Servers: which ones are followed, and how often they are read."""

    url: tuple[str, ...] = option(
        ("http://localhost:8000",),
        "Address of a server, or the path of its operator's socket (--admin-address); may be"
        " repeated.",
    )
    client_key: str = option(
        "",
        "API key to send to the servers, with the scope metrics. Default: PAGEMILL_API_KEY.",
        kind="secret",
    )
    interval: float = option(1.0, "Time between two readings.", unit="s", allowed=Range(0.2, 3600))
    window: float = option(
        30.0,
        "Time that rates, shares and percentiles cover; graphs have a column for each reading.",
        unit="s",
        allowed=Range(1, 3600),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill top",
        "Shows what running servers do: requests, tokens per second, the KV cache, prefix hits,"
        " times, drafts and tenants, from their /metrics. The page needs"
        " `pip install 'pagemill[top]'`; --once and --json do not.",
        "pagemill top\npagemill top --url http://10.0.0.1:8000 --url http://10.0.0.2:8000\n"
        "pagemill top --url /run/pagemill/admin --once",
    )
    made.add_argument(
        "--once", action="store_true", help="read twice, --interval apart, print, and leave"
    )
    made.add_argument(
        "--json", action="store_true", help="print a line of JSON for each server and reading"
    )
    made.add_config(TopConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Shows the servers until a person leaves; with --once, 1 if one of them is away."""
    config = parser.read(TopConfig, args)
    servers = _servers(config)
    if not args.once and not args.json:
        if importlib.util.find_spec("textual") is None:
            raise ConfigError("the page needs `pip install 'pagemill[top]'`; --once does not")
        from pagemill.observe.top.page import TopPage

        TopPage(servers, config.interval).run()
        return 0
    for server in servers:
        server.poll()
    while True:
        time.sleep(config.interval)
        for server in servers:
            server.poll()
        if args.json:
            _print_json(servers)
        else:
            from pagemill.observe.top.text import table

            print(table(servers))
        if args.once:
            return 1 if any(server.away for server in servers) else 0


def _servers(config: TopConfig) -> list[FollowedServer]:
    from pagemill.benchmark.server_client import ServerClient
    from pagemill.observe.top.followed import FollowedServer

    if len(set(config.url)) < len(config.url):
        raise ConfigError("--url: a server is named twice")
    keys = read_environment().api_keys
    key = config.client_key or (keys[0] if keys else "")
    clients = {url: ServerClient(url, key, _TIMEOUT_S) for url in config.url}
    return [FollowedServer(url, client.metrics, config.window) for url, client in clients.items()]


def _print_json(servers: Sequence[FollowedServer]) -> None:
    for server in servers:
        now = None if server.away or server.now is None else dataclasses.asdict(server.now)
        line = {"server": server.name, "state": server.state, "error": server.away, "now": now}
        print(json.dumps(line), flush=True)
