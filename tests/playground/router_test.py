"""The playground of a router, in a browser, and what it needs of the router."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator

import httpx
import pytest
from pagemill.router.testing.fake_fleet import running_router, until
from playwright.sync_api import expect

from tests.playground.pages import (
    BROWSER,
    BROWSER_REASON,
    browser,
    open_page,
    playground,
    send,
    wait_for_end,
)
from tests.playground.scripted_server import scripted_server

needs_browser = pytest.mark.skipif(BROWSER is None, reason=BROWSER_REASON)


@contextlib.contextmanager
def router(*servers: str, **settings: object) -> Iterator[str]:
    """Runs a router to `servers` in a thread; yields its URL."""
    started: queue.Queue[tuple[str, asyncio.AbstractEventLoop]] = queue.Queue()
    stop = asyncio.Event()

    async def route() -> None:
        async with running_router(list(servers), **settings) as (client, fleet, _):
            await until(lambda: len(fleet.available) == len(servers))
            started.put((str(client.base_url).rstrip("/"), asyncio.get_running_loop()))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(route(),), daemon=True)
    thread.start()
    url, loop = started.get(timeout=60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=60)
        assert not thread.is_alive()


@needs_browser
def test_a_chat_and_the_page_of_the_api() -> None:
    with (
        scripted_server("Hello **you**.") as (server, fake),
        router(server) as url,
        browser() as opened,
    ):
        with playground(opened, url) as page:
            expect(page.get_by_label("Model", exact=True)).to_have_value("fake")
            send(page, "Hi")
            wait_for_end(page)
            expect(page.locator("article.assistant strong")).to_have_text("you")
            expect(page.locator("#figures")).to_be_hidden()  # they are those of one server
            page.reload()
            expect(page.locator("article.assistant strong")).to_have_text("you")
            assert len(fake.renderer.rendered) == 1
        with open_page(opened, url, "/docs") as page:
            expect(page.get_by_text("POST /v1/chat/completions", exact=True)).to_be_visible()


def test_the_description_has_the_routes_of_a_router() -> None:
    with scripted_server("a") as (server, _), router(server) as url:
        paths = httpx.get(f"{url}/openapi.json", timeout=60).json()["paths"]
        assert {"/v1/chat/completions", "/tokenize", "/metrics", "/v1/models"} <= set(paths)
        assert "/kv_events" not in paths and "/v1/models/{model}" not in paths
        for path, methods in paths.items():
            for method in methods:
                got = httpx.request(method, f"{url}{path}", timeout=60)
                assert got.status_code not in (404, 405), (method, path)


def test_a_router_without_the_playground() -> None:
    with scripted_server("a") as (server, _), router(server, playground=False) as url:
        assert httpx.get(f"{url}/", timeout=60).status_code == 404
        assert httpx.get(f"{url}/playground/main.js", timeout=60).status_code == 404
