"""The benchmark of a start: from a process's begin to its readiness and to the first token."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pagemill.benchmark.server_client import ClientError, ServerClient
from pagemill.config import EngineConfig, Range, flatten, option
from pagemill.config.env import cache_folder
from pagemill.config.fields import check, leaves
from pagemill.engine.model_plan import model_path

_PROMPT = "The quick brown fox jumps over the lazy dog."


@dataclass(frozen=True, slots=True)
class StartupConfig:
    """Starts: how many are measured."""

    num_iters: int = option(
        3, "Cold starts, and as many warm ones; medians are reported.", allowed=Range(1, 1000)
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


class Server(Protocol):
    """A server that is ready; see `server_process.RunningServer`."""

    url: str
    began: float
    ready_s: float

    def peak_bytes(self) -> int | None:
        """Returns the most resident memory so far."""
        ...


StartServer = Callable[[Mapping[str, Any]], AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Start:
    """One start. Times are from the start of the process; `peak_bytes` is after the first token."""

    ready_s: float
    first_token_s: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Starts:
    """All starts of a run, in their order: the n-th warm one follows the n-th cold one."""

    model: str
    cold: list[Start]
    warm: list[Start]


def run_starts(
    config: EngineConfig,
    num_iters: int,
    start: StartServer,
    *,
    api_key: str,
    on_start: Callable[[], None],
) -> Starts:
    """Starts a server with an empty cache folder, then with the folder that it left, `num_iters`
    times. The model itself is fetched before, if need be.

    Raises:
      ServerError, ClientError: a server does not start, or refuses the first request.
      FetchError: there is no such model.
    """
    model = str(model_path(config.model))
    options = {**_stated(config), "model": model, "revision": None}
    # On the file system of the real one, which may be another than that of temporary files.
    parent = cache_folder(config.model.cache_dir)
    parent.mkdir(parents=True, exist_ok=True)
    found = Starts(model, [], [])
    for _ in range(num_iters):
        with tempfile.TemporaryDirectory(prefix="bench-startup-", dir=parent) as folder:
            for starts in (found.cold, found.warm):
                with start({**options, "cache_dir": folder}) as server:
                    starts.append(_measured(server, api_key))
                on_start()
    return found


def startup_report(found: Starts) -> dict[str, Any]:
    """Returns the report; "cold" comes before "warm"."""
    report: dict[str, Any] = {"model": found.model, "starts": len(found.cold)}
    for name, starts in (("cold", found.cold), ("warm", found.warm)):
        peaks = [each.peak_bytes / 2**20 for each in starts if each.peak_bytes is not None]
        report[f"{name}_ready_s"] = _summary([each.ready_s for each in starts])
        report[f"{name}_first_token_s"] = _summary([each.first_token_s for each in starts])
        report[f"{name}_peak_mib"] = _summary(peaks)
    return report


def _stated(config: EngineConfig) -> dict[str, Any]:
    """The options that differ from their defaults."""
    defaults = {leaf.name: leaf.default for leaf in leaves(EngineConfig)}
    return {name: value for name, value in flatten(config).items() if value != defaults[name]}


def _measured(server: Server, api_key: str) -> Start:
    client = ServerClient(server.url, api_key)
    body = {"model": client.first_model(), "prompt": _PROMPT, "max_tokens": 1, "ignore_eos": True}
    for event in client.stream("/v1/completions", body):
        if event.get("choices"):
            first_token_s = time.perf_counter() - server.began
            return Start(server.ready_s, first_token_s, server.peak_bytes())
    raise ClientError("the server's answer to the first request has no token")


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
