"""Answers and refusals as ASGI responses."""

from __future__ import annotations

import msgspec
from starlette.responses import FileResponse, Response, StreamingResponse

from pagemill.server.answer import Answer, Binary, FileContent, Portions, Talk, Text
from pagemill.server.error_shapes import OPENAI, ErrorShape
from pagemill.server.errors import RETRY_AFTER_S, ApiError
from pagemill.server.event_stream import EventStream


def answer_response(answer: Answer, shape: ErrorShape = OPENAI) -> Response:
    """The response that carries `answer`; `shape` is that of the endpoint's API."""
    if isinstance(answer, Text):
        return Response(answer.content, headers={"content-type": answer.media_type})
    if isinstance(answer, Binary):
        headers = {"content-type": "application/octet-stream"}
        if answer.metadata:
            headers["metadata"] = answer.metadata
        return Response(answer.content, headers=headers)
    if isinstance(answer, FileContent):
        return FileResponse(answer.path, media_type=answer.media_type)
    if isinstance(answer, Portions):
        return StreamingResponse(answer.portions, media_type=answer.media_type)
    if isinstance(answer, msgspec.Struct):
        # Encoding thousands of vectors takes long, but a thread would hold the GIL for as long.
        return Response(msgspec.json.encode(answer), media_type="application/json")
    assert not isinstance(answer, Talk), "it is of a WebSocket"
    return EventStream(answer, shape.idle_event)


def error_response(error: ApiError, shape: ErrorShape = OPENAI) -> Response:
    """The complete HTTP response, with Retry-After if retrying can help."""
    headers: dict[str, str] = {}
    if error.status in RETRY_AFTER_S:
        headers["retry-after"] = str(error.retry_after_s)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(shape.encoded(error), error.status, headers, media_type="application/json")
