"""Every route of both listeners, with no key, with each scope, and from another site's page."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Sequence

import httpx
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.task import Task
from pagemill.server.access.caller import OPERATOR, Caller, Scope
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.app import create_admin_app
from pagemill.server.endpoints.admin_table import ADMIN_ENDPOINTS
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.testing.fake_server import fake_server

SCOPES = (Scope.INFERENCE, Scope.METRICS, Scope.ADMIN)
KEYS = [ApiKey.of(scope, Caller(scope, scopes=frozenset({scope}))) for scope in SCOPES]
ROWS = [(False, row) for row in ENDPOINTS] + [(True, row) for row in ADMIN_ENDPOINTS]
OPEN = {"/health", "/ready", "/ping"}


@contextlib.asynccontextmanager
async def clients(tasks: Sequence[Task]) -> AsyncGenerator[dict[bool, httpx.AsyncClient]]:
    """Of the server's listener, and (True) of the operator's; the model has the first task."""
    generates = not tasks or tasks[0] is Task.GENERATE
    options = FakeOptions() if generates else FakeOptions(pooled_size=4, task=tasks[0])
    async with fake_server(options, keys=KEYS) as server:
        app = create_admin_app(server.state, KeyRing(KEYS))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://fake") as operator:
            yield {False: server.client, True: operator}


async def status(client: httpx.AsyncClient, row: Endpoint, **headers: str) -> int:
    path = re.sub(r"\{.*?\}", "x", row.path)
    body = {"content": b"{}", "headers": {"content-type": "application/json", **headers}}
    return (await client.request(row.method, path, **body)).status_code


@pytest.mark.parametrize(("is_admin", "row"), ROWS, ids=lambda each: getattr(each, "name", each))
def test_what_a_key_reaches(is_admin: bool, row: Endpoint) -> None:
    async def body() -> None:
        async with clients(row.tasks) as listeners:
            client = listeners[is_admin]
            without = await status(client, row)
            assert (without != 401) == (row.path in OPEN) == (row.scope is Scope.OPEN)
            for scope in SCOPES:
                found = await status(client, row, authorization=f"Bearer {scope}")
                may = row.scope in (Scope.OPEN, Scope.KEY, scope)
                assert found != 401 and (found != 403) == may, (scope, found)
            assert await status(client, row, authorization="Bearer other") == (
                without if row.path in OPEN else 401
            )
            assert await status(client, row, origin="http://other.example") == 403

    asyncio.run(body())


def test_listeners_have_no_route_of_each_other() -> None:
    shared = {row.path for row in ENDPOINTS} & {row.path for row in ADMIN_ENDPOINTS}
    assert shared == {"/health", "/ready", "/metrics", "/version", "/kv_events", "/openapi.json"}
    operations = [row for row in ADMIN_ENDPOINTS if row.path not in shared]
    assert operations and all(row.scope is Scope.ADMIN for row in operations)


def test_the_sockets_user_is_the_operator() -> None:
    async def body() -> None:
        async with fake_server(keys=KEYS) as server:
            transport = httpx.ASGITransport(create_admin_app(server.state, None, OPERATOR))
            async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
                assert (await client.get("/server_info")).json()["models"] == ["fake", "alias"]
                assert (await client.get("/get_world_size")).json() == {"world_size": 1}
                paths = (await client.get("/openapi.json")).json()["paths"]
                assert set(paths) == {row.path for row in ADMIN_ENDPOINTS}

    asyncio.run(body())
