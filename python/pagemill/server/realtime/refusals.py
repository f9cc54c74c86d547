"""Refusals and failures as events have them."""

from __future__ import annotations

from pagemill.server.errors import ApiError
from pagemill.server.protocol.realtime import EventError


def event_error(error: ApiError, event_id: str | None = None) -> EventError:
    """`error` about the event with this id of the client; None: it had none."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    code = error.type_name.replace(" ", "")
    return EventError(
        type=kind, code=code, message=error.message, param=error.param, event_id=event_id
    )
