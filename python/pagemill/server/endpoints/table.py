"""The endpoints there are. A new one is a module here and a row."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`target` is "module:function" below this package, imported when an app is made."""

    name: str
    method: str
    path: str
    target: str

    def load(self) -> Handler:
        """The handler."""
        module, _, function = self.target.partition(":")
        return getattr(importlib.import_module(f"{__package__}.{module}"), function)


ENDPOINTS = (
    Endpoint("chat_completions", "POST", "/v1/chat/completions", "chat_completions:create"),
    Endpoint("completions", "POST", "/v1/completions", "completions:create"),
    Endpoint("embeddings", "POST", "/v1/embeddings", "embeddings:create"),
    Endpoint("health", "GET", "/health", "health:get"),
    Endpoint("metrics", "GET", "/metrics", "metrics:get"),
    Endpoint("model", "GET", "/v1/models/{model:path}", "models:retrieve"),
    Endpoint("models", "GET", "/v1/models", "models:list_models"),
    Endpoint("ping", "GET", "/ping", "ready:get"),
    Endpoint("ping_post", "POST", "/ping", "ready:get"),
    Endpoint("ready", "GET", "/ready", "ready:get"),
    Endpoint("version", "GET", "/version", "version:get"),
)
