"""A path that a proxy in front of the server adds before the server's own."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """An ASGI layer that takes the path away from those requests that come with it: some proxies
    have done so already."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._prefix = f"{root_path}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            scope["path"] = scope["path"][len(self._prefix) - 1 :]
        await self._app(scope, receive, send)
