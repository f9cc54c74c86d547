"""Who calls: tenants and scopes of API keys, and the header that a proxy sets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from pagemill.server.access.caller import DEFAULT_GRANTS, Caller, Scope
from pagemill.server.access.keys import ApiKey
from pagemill.server.testing.fake_server import FakeServer, fake_server

KEYS = (
    ApiKey.of("k-web", Caller("web", "blue", frozenset({Scope.INFERENCE}))),
    ApiKey.of("k-probe", Caller("probe", "probe", frozenset({Scope.METRICS}))),
    ApiKey.of("k-none", Caller("none", "none", frozenset())),
    ApiKey.of("k-all", Caller("all", "all", DEFAULT_GRANTS)),
)


async def post(server: FakeServer, key: str, tenant: str = "") -> int:
    headers = {"authorization": f"Bearer {key}", **({"x-tenant-id": tenant} if tenant else {})}
    body = {"prompt": "a", "max_tokens": 1}
    response = await server.client.post("/v1/completions", json=body, headers=headers)
    return response.status_code


def tenants(server: FakeServer) -> Sequence[str]:
    return [state.request.tenant for state in server.engine.submitted]


def test_a_lacking_scope_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with fake_server(keys=KEYS) as server:
            headers = {"x-api-key": "k-none"}
            got = await server.client.post("/v1/completions", json={}, headers=headers)
            assert got.status_code == 403
            assert "scope 'inference'" in got.json()["error"]["message"]
            text = (await server.client.get("/metrics", headers={"x-api-key": "k-all"})).text
            assert (
                'http_responses_total{key="none",path="/v1/completions",status="403"} 1.0' in text
            )
            assert "k-web" not in text

    with caplog.at_level(logging.INFO):
        asyncio.run(body())
    assert "(key none)" in caplog.text
    assert "k-none" not in caplog.text


def test_the_tenant_is_the_keys_own() -> None:
    async def body() -> None:
        async with fake_server(keys=KEYS) as server:
            assert await post(server, "k-web", "red") == 200
            assert await post(server, "k-all") == 200
            assert tenants(server) == ["blue", "all"]

    asyncio.run(body())


def test_a_proxy_may_name_the_tenant() -> None:
    async def body() -> None:
        async with fake_server(keys=KEYS, trust_tenant_header=True) as server:
            assert await post(server, "k-web", "team/red") == 200
            assert await post(server, "k-web") == 200
            assert tenants(server) == ["team/red", "blue"]
            for bad in ("a b", "x" * 129):
                assert await post(server, "k-web", bad) == 400
            assert len(server.engine.submitted) == 2
        async with fake_server() as server:  # without keys, the header is not trusted either
            assert await post(server, "", "red") in (200, 401)
            assert tenants(server) == [""]

    asyncio.run(body())
