"""The engine's load in the header of a response, for balancers that speak ORCA (Open Request Cost
Aggregation): a request asks for it, in one of two formats."""

from __future__ import annotations

import msgspec

from pagemill.observe.snapshot import EngineSnapshot, kv_usage

REQUEST_HEADER = "endpoint-load-metrics-format"
RESPONSE_HEADER = "endpoint-load-metrics"


def load_report(format_: str, stats: EngineSnapshot) -> str | None:
    """The header's value in the format TEXT or JSON; None for another one."""
    named = {
        "kv_cache_usage_perc": round(kv_usage(stats), 6),
        "num_requests_waiting": stats.num_waiting,
    }
    match format_.strip().upper():
        case "TEXT":
            return "TEXT " + ", ".join(f"named_metrics.{name}={named[name]}" for name in named)
        case "JSON":
            return "JSON " + msgspec.json.encode({"named_metrics": named}).decode()
        case _:
            return None
