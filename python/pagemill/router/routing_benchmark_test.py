"""The benchmark runs; it says nothing about its figures."""

from __future__ import annotations

import asyncio

from pagemill.router.routing_benchmark import measure


def test_it_measures() -> None:
    measured = asyncio.run(measure("least_loaded", requests=3, streams=2, tokens=3))
    assert set(measured) == {
        "request_direct_ms",
        "request_routed_ms",
        "cpu_us_per_request",
        "cpu_us_per_token",
    }
    assert measured["cpu_us_per_request"] > 0
