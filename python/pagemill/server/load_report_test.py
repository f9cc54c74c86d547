"""The engine's load in the header of responses, for those that ask for it."""

from __future__ import annotations

import asyncio
import json

from pagemill.server.testing.fake_server import fake_server

ASKS, HEADER = "endpoint-load-metrics-format", "endpoint-load-metrics"


def test_reports() -> None:
    async def body() -> None:
        async with fake_server() as server:
            for fields in ({}, {"stream": True}, {"model": "absent"}):
                content = {"prompt": "a", "max_tokens": 2, **fields}

                async def header(format_: str, content: object = content) -> str | None:
                    headers = {ASKS: format_}
                    got = await server.client.post("/v1/completions", json=content, headers=headers)
                    return got.headers.get(HEADER)

                text, report = await header("text"), await header("JSON")
                assert text is not None and report is not None and await header("xml") is None
                assert text.startswith("TEXT named_metrics.kv_cache_usage_perc=0.")
                assert text.endswith("named_metrics.num_requests_waiting=0")
                kind, _, encoded = report.partition(" ")
                assert kind == "JSON" and set(json.loads(encoded)["named_metrics"]) == {
                    "kv_cache_usage_perc",
                    "num_requests_waiting",
                }
            got = await server.client.post("/v1/completions", json={"prompt": "a"})
            assert HEADER not in got.headers
            got = await server.client.get("/v1/models", headers={ASKS: "TEXT"})
            assert HEADER not in got.headers

    asyncio.run(body())
