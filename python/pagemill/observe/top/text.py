"""Figures as text: numbers for people, and the table of `pagemill top --once`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagemill.observe.top.figures import Figures, Quantiles
from pagemill.observe.top.followed import FollowedServer

NOTHING = "-"
_MAX_NAME = 32


def count(value: float) -> str:
    """A number of at most three digits behind its unit: 0.5, 12, 3.4k, 1.2M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return (
                f"{value / size:.3g}{unit}" if value < 100 * size else f"{value / size:.0f}{unit}"
            )
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def model_name(name: str) -> str:
    """The end of a name that is too long for a column, such as a path."""
    return name if len(name) <= _MAX_NAME else "…" + name[1 - _MAX_NAME :]


def share(value: float | None) -> str:
    """A percentage."""
    return NOTHING if value is None else f"{100 * value:.0f}%"


def duration(seconds: float) -> str:
    """In milliseconds below a second."""
    if seconds >= 100:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def times(value: Quantiles | None) -> str:
    """Median and 99th percentile."""
    return NOTHING if value is None else f"{duration(value.p50)} / {duration(value.p99)}"


ROWS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("model", lambda now: model_name(now.model) or NOTHING),
    ("requests running", lambda now: str(now.running)),
    ("requests waiting", lambda now: str(now.waiting)),
    ("prompt tokens waiting", lambda now: count(now.waiting_tokens)),
    ("requests ended/s", lambda now: count(now.requests)),
    ("tokens in/s", lambda now: count(now.prompt_tokens)),
    ("tokens out/s", lambda now: count(now.generation_tokens)),
    ("KV cache in use", lambda now: share(now.kv_usage)),
    ("prefix cache hits", lambda now: share(now.prefix_hits)),
    ("first token p50/p99", lambda now: times(now.time_to_first_token)),
    ("between tokens p50/p99", lambda now: times(now.between_tokens)),
    ("in queue p50/p99", lambda now: times(now.queue_time)),
    ("drafts accepted", lambda now: share(now.drafts_accepted)),
    ("preemptions", lambda now: str(now.preemptions)),
    ("requests refused", lambda now: str(now.refused)),
    ("process restarts", lambda now: str(now.restarts)),
)


def table(servers: Sequence[FollowedServer]) -> str:
    """A column for each server, then the tenants of each."""
    rows = [["", *(server.name for server in servers)]]
    rows.append(["state", *(server.state for server in servers)])
    for title, cell in ROWS:
        found = [None if server.away else server.now for server in servers]
        rows.append([title, *(NOTHING if now is None else cell(now) for now in found)])
    lines = _aligned(rows)
    for server in servers:
        if server.away:
            lines += ["", f"{server.name} is away: {server.away}"]
        elif server.now is not None and server.now.tenants:
            head = [f"tenants of {server.name}", "requests/s", "tokens in/s", "tokens out/s"]
            lines += ["", *_aligned([head, *tenant_rows(server.now)])]
    return "\n".join(lines)


def tenant_rows(now: Figures) -> list[list[str]]:
    """Name, requests, tokens in and tokens out of each tenant."""
    return [
        [
            row.tenant or "(none)",
            count(row.requests),
            count(row.prompt_tokens),
            count(row.generation_tokens),
        ]
        for row in now.tenants
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
