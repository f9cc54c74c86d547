"""A page in a browser: one of an allowed origin uses the API, one of another origin cannot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.config import ConnectionConfig, OriginConfig
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.server.transport.http_server import HttpServer, listen

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell is not installed")

# Writes what each way to use the API gave into the page, whose text the browser prints.
PAGE = """<!doctype html><pre id="found"></pre><script>
const url = "http://127.0.0.1:PORT/v1/completions";
const headers = {"Authorization": "Bearer key", "Content-Type": "application/json"};
const body = (stream) => JSON.stringify({prompt: "a", max_tokens: 3, ignore_eos: true, stream});
const ways = {
  async answer() {
    const got = await fetch(url, {method: "POST", headers, body: body(false)});
    return [got.status, got.headers.get("x-request-id").length, (await got.json()).object];
  },
  async stream() {
    const got = await fetch(url, {method: "POST", headers, body: body(true)});
    return [got.status, (await got.text()).trim().endsWith("[DONE]")];
  },
  async refusal() {
    const got = await fetch(url, {method: "POST", headers: {...headers, Authorization: "x"}});
    return [got.status, (await got.json()).error.type];
  },
  async withoutPreflight() {
    const got = await fetch(url, {method: "POST", mode: "no-cors", body: body(false)});
    return [got.type];
  },
};
(async () => {
  const found = {};
  for (const [name, way] of Object.entries(ways)) {
    try { found[name] = await way(); } catch (error) { found[name] = [error.name]; }
  }
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>"""


@contextlib.asynccontextmanager
async def serving(app: ASGIApp) -> AsyncGenerator[int, None]:
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app, ConnectionConfig())
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def open_page(url: str, profile: Path) -> dict[str, Any]:
    """What the page at `url` found."""
    assert BROWSER is not None
    command = [
        BROWSER,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={profile}", "--virtual-time-budget=30000", "--dump-dom", url),
    ]
    browser = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"HOME": str(profile), "PATH": "/usr/bin:/bin"},
    )
    try:
        output, _ = await asyncio.wait_for(browser.communicate(), 60)
    finally:
        if browser.returncode is None:
            browser.kill()
    found = re.search(r'<pre id="found">(.*?)</pre>', output.decode())
    assert found is not None and found[1], output.decode()[:2000]
    return json.loads(found[1])


async def handled(server: FakeServer) -> list[str]:
    """Samples of responses that handlers gave."""
    got = await server.client.get("/metrics", headers={"authorization": "Bearer key"})
    return re.findall(r'http_responses_total\{.*?path="/v1/completions".*', got.text)


def test_pages(tmp_path: Path) -> None:
    page = {"html": ""}

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        await HTMLResponse(page["html"])(scope, receive, send)

    async def main() -> None:
        async with serving(show) as allowed_port, serving(show) as other_port:
            allowed = f"http://127.0.0.1:{allowed_port}"
            origins = OriginConfig(allowed_origins=(allowed,))
            async with (
                fake_server(api_keys=["key"], origins=origins) as server,
                serving(server.app) as port,
            ):
                page["html"] = PAGE.replace("PORT", str(port))
                # localhost is another site, not only another port of this one.
                for address in (f"http://127.0.0.1:{other_port}", f"http://localhost:{other_port}"):
                    found = await open_page(f"{address}/", tmp_path / "other")
                    assert found == {
                        "answer": ["TypeError"],
                        "stream": ["TypeError"],
                        "refusal": ["TypeError"],
                        "withoutPreflight": ["opaque"],
                    }
                    assert await handled(server) == []
                assert await open_page(f"{allowed}/", tmp_path / "allowed") == {
                    "answer": [200, 32, "text_completion"],
                    "stream": [200, True],
                    "refusal": [401, "AuthenticationError"],
                    "withoutPreflight": ["opaque"],
                }
                assert len(await handled(server)) > 0

    asyncio.run(main())
