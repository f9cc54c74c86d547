"""Counts requests at their end."""

from __future__ import annotations

from pagemill.observe.metrics import RequestMetrics
from pagemill.server.records.record import RequestRecord

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ROUTE = "none"


def count(metrics: RequestMetrics, record: RequestRecord) -> None:
    """Counts a request. Labels are a fixed set, whatever was sent."""
    method = record.method if record.method in _METHODS else "other"
    route = record.route or _NO_ROUTE
    metrics.responded(route, method, record.status, record.duration_s, record.key_id)
