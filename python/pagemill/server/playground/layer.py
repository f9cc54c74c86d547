"""The playground: a page for chats at `/`, and one of the HTTP API at `/docs`. Their files are
static and need no API key; what the pages show comes from the API, with the key of their user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.records.record import RequestRecord

_FOLDER = Path(__file__).parent / "page"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing of another origin, nothing inline, no frame around the page, and no text that becomes
# markup: the page shows what models write. Images are the server's icon, and those that the user
# attaches.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_PAGES = {"/": "index.html", "/docs": "reference.html"}
_METHODS = "GET, HEAD, OPTIONS"


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    headers: Mapping[str, str]
    etag: str


class Playground:
    """An ASGI layer that answers `/`, `/docs` and `/playground/NAME`, and passes everything else to
    `app`.

    The files are read when it is made. Paths are looked up in a table: no path reaches the disk.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._files = _read_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        file = self._files.get(scope["path"]) if scope["type"] == "http" else None
        if file is None:
            await self._app(scope, receive, send)
            return
        record: RequestRecord | None = scope.get("state", {}).get("record")
        if record is not None:
            record.route = "/"  # one label of metrics for all files
        await _response(file, scope)(scope, receive, send)


def _read_files() -> dict[str, _File]:
    """The files by the path that they are served under."""
    files = {
        f"/playground/{path.name}": _file(path)
        for path in _FOLDER.iterdir()
        if path.suffix in _MEDIA_TYPES
    }
    for path, name in _PAGES.items():
        files[path] = files.pop(f"/playground/{name}")
    return files


def _file(path: Path) -> _File:
    content = path.read_bytes()
    etag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = {
        "content-type": _MEDIA_TYPES[path.suffix],
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "x-dns-prefetch-control": "off",  # of links that models write
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",  # a browser asks whether its copy is still right
        "etag": etag,
    }
    return _File(content, headers, etag)


def _response(file: _File, scope: Scope) -> Response:
    method = scope["method"]
    if method == "OPTIONS":
        return Response(status_code=204, headers={"allow": _METHODS})
    if method not in ("GET", "HEAD"):
        refusal = ApiError(405, f"{scope['path']} does not take {method[:20]}.")
        response = error_response(refusal)
        response.headers["allow"] = _METHODS
        return response
    if _has_copy(Headers(scope=scope).get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=file.headers)
    return Response(file.content, headers=file.headers)


def _has_copy(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]
