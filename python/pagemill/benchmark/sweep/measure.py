"""Measures what is missing in the results of a sweep: a fresh server for each of its settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pagemill.benchmark.server_client import ClientError, ServerClient
from pagemill.benchmark.server_process import ServerError, as_flags
from pagemill.benchmark.serving import LoadConfig, failures, run_load, serving_report
from pagemill.benchmark.sweep.grid import Grid, Options, Run
from pagemill.benchmark.sweep.results import Results
from pagemill.config import build


class Server(Protocol):
    """A server that is ready."""

    url: str

    def wait_until_ready(self) -> None:
        """Returns when it is ready again. Raises ServerError if it has ended."""
        ...


StartServer = Callable[[Options], AbstractContextManager[Server]]


def measure_missing(
    grid: Grid,
    results: Results,
    start: StartServer,
    *,
    api_key: str,
    note: Callable[[str], None],
    on_run: Callable[[int], None],
) -> None:
    """Adds each run of `grid` that `results` lack.

    What failed is noted. If a server does not start, refuses or ends, its other runs are left out,
    and so is a run whose requests all failed: they are missing in the results, and another sweep
    tries them again.

    Args:
      grid: what to measure.
      results: what was measured before.
      start: starts a server with these options, and stops it at the end of the context.
      api_key: sent with each request.
      note: takes a sentence about what failed.
      on_run: takes the number of runs that were done or left out since the last call.
    """
    for server in grid.servers:
        runs = list(grid.runs(server))
        missing = [run for run in runs if run not in results]
        on_run(len(runs) - len(missing))
        left = len(missing)
        try:
            if missing:
                with start(server) as running:
                    for run in missing:
                        report = _measured(run, running, api_key, note)
                        if report is not None:
                            results.add(run, report)
                        left -= 1
                        on_run(1)
        except (ServerError, ClientError) as error:
            flags = " ".join(as_flags(server))
            note(f"{left} run(s) left out of `pagemill serve {flags}`: {error}")
            on_run(left)


def _measured(
    run: Run, server: Server, api_key: str, note: Callable[[str], None]
) -> dict[str, Any] | None:
    """None if all requests failed."""
    own = {"url": server.url, "client_key": api_key, "workload_seed": run.seed}
    config = build(LoadConfig, {**run.load, **own})
    client = ServerClient(server.url, api_key)
    measured = run_load(config, client, with_limits=False, note=note)
    if not all(each.ok for each in measured.times):
        server.wait_until_ready()  # requests that failed with their server are not a result
        for error in failures(measured.times):
            note(f"failed with {' '.join(as_flags(run.load))}: {error}")
    return serving_report(measured) if any(each.ok for each in measured.times) else None
