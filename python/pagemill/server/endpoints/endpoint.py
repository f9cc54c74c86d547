"""What an endpoint is."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.answer import Answer
from pagemill.server.error_shapes import OPENAI, ErrorShape
from pagemill.server.protocol.decode import FieldRules

if TYPE_CHECKING:
    from pagemill.server.state import ServerState

Handler = Callable[["ServerState", Any, Caller], Awaitable[Answer]]
"""(server, body, caller) -> answer. The body is a `request` struct. Knows nothing of HTTP."""


class Transport(Enum):
    """Where the fields of a request come from."""

    JSON = auto()
    """A JSON object: the body of a POST, or a line of a batch file."""
    FORM = auto()
    """A form with a file (multipart/form-data), which is stored while it is read."""
    AUDIO_FORM = auto()
    """A form with a file of audio, which is kept in memory."""
    PATH = auto()
    """The parameters of an HTTP path and its query; such an endpoint exists over HTTP only."""
    PATH_AND_JSON = auto()
    """Both the path and a JSON object, of what one server stores; over HTTP only."""
    WEBSOCKET = auto()
    """Those of PATH, of a request that becomes a WebSocket."""


_WORK = (Transport.JSON, Transport.AUDIO_FORM)


@dataclass(frozen=True, slots=True)
class BodyType:
    """A request's struct, and the rules for fields that it does not have."""

    kind: type[Any]
    rules: FieldRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One route.

    `handler` is "module:function" below this package, or a dotted module elsewhere; `request`,
    `response` and `event` (of a stream) are "module:Type" below `protocol`, or likewise elsewhere.
    They are imported when they are needed. A module of `request` has its `RULES`; without `request`
    the handler gets the fields as they are. Without `response` the answer is an object of strings.
    `tasks`: of models that have it; none: all do. `binary`: an answer may be bytes instead.
    `errors`: those of the API that the route belongs to. `queued`: its requests wait in the
    engine's queue. `statuses` are of errors that only some routes have.
    """

    name: str
    method: str
    path: str
    handler: str
    scope: Scope
    tasks: tuple[Task, ...] = ()
    transport: Transport = Transport.PATH
    request: str = ""
    response: str = ""
    event: str = ""
    media_type: str = "application/json"
    binary: bool = False
    errors: ErrorShape = OPENAI
    queued: bool = False
    statuses: tuple[int, ...] = ()

    @property
    def is_metered(self) -> bool:
        """Whether it counts against a key's limits: it is work for the model or its tokenizer."""
        return self.scope is Scope.INFERENCE and self.transport in _WORK

    def load(self) -> Handler:
        """The handler."""
        module, _, function = self.handler.partition(":")
        name = module if "." in module else f"{__package__}.{module}"
        return getattr(importlib.import_module(name), function)

    def request_type(self) -> BodyType | None:
        """The type of the handler's body."""
        if not self.request:
            return None
        module, kind = _protocol(self.request)
        return BodyType(kind, module.RULES)

    def response_type(self) -> Any:
        """The type of an answer."""
        return _protocol(self.response)[1] if self.response else dict[str, str]

    def event_type(self) -> Any:
        """The type of a stream's events; None for an endpoint without streams."""
        return _protocol(self.event)[1] if self.event else None


def _protocol(target: str) -> tuple[Any, Any]:
    name, _, kind = target.partition(":")
    module = importlib.import_module(name if "." in name else f"pagemill.server.protocol.{name}")
    return module, getattr(module, kind)
