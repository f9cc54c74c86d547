"""Pages of other origins, preflight, the Host header, and what is open without a key."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from pagemill.config import ConfigError, OriginConfig
from pagemill.server.testing.fake_server import fake_server

PAGE = "https://app.example"
PAYLOAD = {"prompt": "a", "max_tokens": 1}
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


def post(client: httpx.AsyncClient, origin: str | None, **headers: str):
    if origin is not None:
        headers["origin"] = origin
    return client.post("/v1/completions", json=PAYLOAD, headers=headers)


def test_other_origins_are_refused_by_default() -> None:
    async def body() -> None:
        async with fake_server() as server:
            for origin in (PAGE, "null", "http://fake:9", "http://fake.evil.example"):
                got = await post(server.client, origin)
                assert got.status_code == 403
                assert "--allowed-origins" in got.json()["error"]["message"]
                assert "access-control-allow-origin" not in got.headers
                assert "x-request-id" in got.headers
                headers = {**PREFLIGHT, "origin": origin}
                got = await server.client.options("/v1/completions", headers=headers)
                assert got.status_code == 403
                assert not [name for name in got.headers if name.startswith("access-control")]
            # No browser, and a page that this server or a proxy in front of it served.
            for origin in (None, "http://fake", "https://fake"):
                assert (await post(server.client, origin)).status_code == 200
            got = await post(server.client, "http://fake:80", host="fake:80")
            assert got.status_code == 200

    asyncio.run(body())


def test_what_a_page_may_send_without_asking_reaches_no_handler() -> None:
    async def body() -> None:
        async with fake_server() as server:
            for content_type in (
                *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"),
                *("", None),
            ):
                headers = {} if content_type is None else {"content-type": content_type}
                for path in ("/v1/completions", "/v1/chat/completions", "/invocations"):
                    content = b'{"prompt": "a"}'
                    got = await server.client.post(path, content=content, headers=headers)
                    assert got.status_code == 400
                    assert "Content-Type" in got.json()["error"]["message"]

    asyncio.run(body())


def test_allowed_origins() -> None:
    async def body() -> None:
        origins = OriginConfig(allowed_origins=(PAGE,))
        async with fake_server(api_keys=["k"], origins=origins) as server:
            headers = {**PREFLIGHT, "origin": PAGE}
            got = await server.client.options("/v1/completions", headers=headers)  # no key
            assert got.status_code == 200
            assert got.headers["access-control-allow-origin"] == PAGE
            allowed = got.headers["access-control-allow-headers"]
            assert allowed == PREFLIGHT["access-control-request-headers"]
            assert "POST" in got.headers["access-control-allow-methods"]
            assert "access-control-allow-credentials" not in got.headers
            headers["access-control-request-private-network"] = "true"
            got = await server.client.options("/v1/completions", headers=headers)
            assert got.headers["access-control-allow-private-network"] == "true"
            # The page can read refusals as well.
            for key, status in (("k", 200), ("x", 401)):
                got = await post(server.client, PAGE, authorization=f"Bearer {key}")
                assert got.status_code == status
                assert got.headers["access-control-allow-origin"] == PAGE
                assert "Origin" in got.headers["vary"]
                exposed = got.headers["access-control-expose-headers"].split(", ")
                assert exposed == ["X-Request-Id", "Retry-After", "Metadata"]
            got = await post(server.client, "https://other.example", authorization="Bearer k")
            assert got.status_code == 403

    asyncio.run(body())


def test_methods_headers_credentials_and_every_origin() -> None:
    async def body() -> None:
        origins = OriginConfig(
            allowed_origins=(PAGE,),
            allowed_methods=("GET",),
            allowed_headers=("Authorization",),
            allow_credentials=True,
        )
        async with fake_server(origins=origins) as server:
            headers = {"origin": PAGE, "access-control-request-method": "POST"}
            got = await server.client.options("/v1/models", headers=headers)
            assert got.status_code == 400
            headers["access-control-request-method"] = "GET"
            got = await server.client.options("/v1/models", headers=headers)
            assert got.status_code == 200
            assert got.headers["access-control-allow-credentials"] == "true"
            headers["access-control-request-headers"] = "x-other"
            got = await server.client.options("/v1/models", headers=headers)
            assert got.status_code == 400
        async with fake_server(origins=OriginConfig(allowed_origins=("*",))) as server:
            got = await post(server.client, "null")
            assert got.status_code == 200
            assert got.headers["access-control-allow-origin"] == "*"

    asyncio.run(body())


def test_allowed_hosts() -> None:
    async def body() -> None:
        origins = OriginConfig(allowed_hosts=("fake", "*.example.com", "::1"))
        async with fake_server(origins=origins) as server:
            for host in ("fake", "FAKE:8000", "a.example.com", "b.a.example.com:80", "[::1]:8000"):
                got = await server.client.get("/v1/models", headers={"host": host})
                assert got.status_code == 200, host
            for host in ("evil.example", "example.com", "fake.evil.example", "", "[", "::1:x"):
                # A page whose name resolves to this server is of its own origin.
                headers = {"host": host, "origin": f"http://{host}"}
                got = await server.client.get("/v1/models", headers=headers)
                assert got.status_code == 403, host
                assert "--allowed-hosts" in got.json()["error"]["message"]
            for path in ("/health", "/ready", "/ping"):
                got = await server.client.get(path, headers={"host": "10.0.0.7:8000"})
                assert got.status_code == 200

    asyncio.run(body())


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"allowed_origins": ("example.com",)}, "https://example.com"),
        ({"allowed_origins": ("https://example.com/",)}, "without a path"),
        ({"allowed_origins": ('["*"]',)}, "not an origin"),
        ({"allowed_origins": ("*",), "allow_credentials": True}, "by name"),
        ({"allowed_hosts": ("example.com:8000",)}, "without port"),
        ({"allowed_hosts": ("http://example.com",)}, "without port"),
    ],
)
def test_settings_that_would_never_match(values: dict[str, object], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        OriginConfig(**values)  # type: ignore[arg-type]
