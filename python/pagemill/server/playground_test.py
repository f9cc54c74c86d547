"""The playground's files over HTTP: open, and nothing else is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import httpx
import pytest

from pagemill.config import OriginConfig
from pagemill.server.testing.fake_server import fake_server

Test = Callable[[httpx.AsyncClient], Awaitable[None]]


def run(test: Test, *, playground: bool = True, loaded: bool = True) -> None:
    async def main() -> None:
        async with fake_server(api_keys=["key"], playground=playground, loaded=loaded) as server:
            await test(server.client)

    asyncio.run(main())


async def names(client: httpx.AsyncClient) -> set[str]:
    """The paths that the pages and their modules name."""
    text = (await client.get("/")).text + (await client.get("/docs")).text
    found = set(re.findall(r'(?:src|href)="(playground/[^"]+)"', text))
    unread = {name for name in found if name.endswith(".js")}
    while unread:
        text = (await client.get(f"/{unread.pop()}")).text
        used = {f"playground/{name}" for name in re.findall(r'from "\./([^"]+)"', text)}
        unread |= used - found
        found |= used
    return found


@pytest.mark.parametrize("loaded", [True, False])
def test_files_need_no_key_and_no_model(loaded: bool) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        for path in ("/", "/docs"):
            page = await client.get(path)
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/html; charset=utf-8"
        found = await names(client)
        assert {"playground/main.js", "playground/style.css", "playground/icon.svg"} <= found
        types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        for name in found:
            got = await client.get(f"/{name}")
            assert got.status_code == 200, name
            assert got.headers["content-type"].startswith(types[name.rpartition(".")[2]])
            assert got.headers["x-content-type-options"] == "nosniff"
            assert got.headers["x-dns-prefetch-control"] == "off"
            policy = got.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert "http" not in policy
            assert got.headers["x-request-id"]

    run(test, loaded=loaded)


def test_the_page_names_no_other_address() -> None:
    async def test(client: httpx.AsyncClient) -> None:
        for name in ("", "docs", *(await names(client))):
            text = (await client.get(f"/{name}")).text
            assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)

    run(test)


@pytest.mark.parametrize(
    "path",
    [
        "/playground",
        "/playground/",
        "/docs/",
        "/playground/index.html",
        "/playground/reference.html",
        "/playground/nothing.js",
        "/playground/../server/access/auth.py",
        "/playground/..%2fserver%2fauth.py",
        "/playground/%2e%2e/server/access/auth.py",
        "/playground/BUILD.bazel",
        "/playground/main.js/",
        "/playground//main.js",
        "/favicon.ico",
    ],
)
def test_everything_else_needs_a_key(path: str) -> None:
    async def test(client: httpx.AsyncClient) -> None:
        assert (await client.get(path)).status_code == 401
        authorized = {"authorization": "Bearer key"}
        assert (await client.get(path, headers=authorized)).status_code == 404

    run(test)


def test_copies_are_revalidated() -> None:
    async def test(client: httpx.AsyncClient) -> None:
        first = await client.get("/playground/main.js")
        etag = first.headers["etag"]
        assert first.headers["cache-control"] == "no-cache"
        for sent in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            got = await client.get("/playground/main.js", headers={"if-none-match": sent})
            assert (got.status_code, got.content) == (304, b"")
            assert got.headers["etag"] == etag
        for sent in ('"other"', "", etag.strip('"')):
            got = await client.get("/playground/main.js", headers={"if-none-match": sent})
            assert got.status_code == 200

    run(test)


def test_methods() -> None:
    async def test(client: httpx.AsyncClient) -> None:
        for path in ("/", "/playground/main.js"):
            assert (await client.head(path)).status_code == 200
            got = await client.options(path)
            assert (got.status_code, got.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
            for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE"):
                got = await client.request(method, path)
                assert got.status_code == 405
                assert got.headers["allow"] == "GET, HEAD, OPTIONS"
                assert got.json()["error"]["type"] == "MethodNotAllowedError"

    run(test)


def test_a_server_without_the_playground() -> None:
    async def test(client: httpx.AsyncClient) -> None:
        for path in ("/", "/docs", "/playground/main.js"):
            assert (await client.get(path)).status_code == 401
            got = await client.get(path, headers={"authorization": "Bearer key"})
            assert got.status_code == 404

    run(test, playground=False)


def test_rules_of_hosts_and_origins_hold() -> None:
    async def main() -> None:
        origins = OriginConfig(allowed_hosts=("fake",))
        async with fake_server(origins=origins) as server:
            assert (await server.client.get("/")).status_code == 200
            for headers in ({"host": "rebound.example"}, {"origin": "https://other.example"}):
                assert (await server.client.get("/", headers=headers)).status_code == 403

    asyncio.run(main())


def test_requests_are_counted_under_one_name() -> None:
    async def test(client: httpx.AsyncClient) -> None:
        await client.get("/")
        await client.get("/playground/main.js")
        got = await client.get("/metrics", headers={"authorization": "Bearer key"})
        counted = [
            line
            for line in got.text.splitlines()
            if line.startswith("pagemill:http_responses_total") and 'path="/"' in line
        ]
        assert len(counted) == 1 and counted[0].endswith(" 2.0")
        assert "playground" not in got.text

    run(test)
