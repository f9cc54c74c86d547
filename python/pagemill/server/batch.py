"""OpenAI's batch files: a request on each line, answered by the handlers that answer HTTP.

A line is `{"custom_id", "method": "POST", "url", "body"}`; its answer is `{"id", "custom_id",
"response": {"status_code", "request_id", "body"}, "error"}`. A request that is refused has the
refusal's status and error object in `response`; a line that is not a request has `error` instead.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from pagemill.server.answer import Text
from pagemill.server.caller import ANONYMOUS
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.table import ENDPOINTS, Endpoint, Transport, error_shape
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.decode import explain
from pagemill.server.protocol.request_id import named
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")


class BatchRequest(msgspec.Struct):
    """A line of the input."""

    custom_id: str
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


class BatchResponse(msgspec.Struct):
    """What HTTP would have answered."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class BatchError(msgspec.Struct):
    """Why a line is not a request."""

    code: str
    message: str


class BatchOutput(msgspec.Struct):
    """A line of the output."""

    id: str
    custom_id: str | None
    response: BatchResponse | None
    error: BatchError | None


async def answer_lines(
    server: ServerState,
    lines: Iterable[bytes],
    write: Callable[[BatchOutput], None],
    concurrency: int,
) -> None:
    """Answers every line that is not blank, at most `concurrency` at once.

    Answers are written as they come, so not in the order of the lines: `custom_id` tells them
    apart. Lines are read as there is room for them.
    """
    waiting = _requests(lines, write)

    async def work() -> None:
        for request in waiting:
            write(await _answer(server, request))

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())


def _requests(
    lines: Iterable[bytes], write: Callable[[BatchOutput], None]
) -> Iterator[BatchRequest]:
    """The lines that are requests; the others are written with their errors."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = msgspec.json.decode(line, type=BatchRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            write(_no_request(number, _reason(error)))
            continue
        if request.custom_id in seen:
            write(_no_request(number, "an earlier line has this `custom_id`.", request.custom_id))
            continue
        seen.add(request.custom_id)
        yield request


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return explain(error)[0]
    return "it is nested too deeply." if isinstance(error, RecursionError) else "it is not JSON."


def _no_request(number: int, reason: str, custom_id: str | None = None) -> BatchOutput:
    error = BatchError("invalid_request", f"Line {number}: {reason}")
    return BatchOutput(_new_id(), custom_id, None, error)


async def _answer(server: ServerState, request: BatchRequest) -> BatchOutput:
    request_id = secrets.token_hex(16)
    errors = error_shape(request.url)
    try:
        fields, request_id = named(request.body, request_id)
        body = await _patient(server, _endpoint(request.url), fields)
        response = BatchResponse(200, request_id, msgspec.Raw(body))
    except ApiError as error:
        response = BatchResponse(error.status, request_id, msgspec.Raw(errors.encoded(error)))
    except Exception:
        _LOGGER.exception("the request %r failed", request.custom_id[:100])
        failure = ApiError(500, "The request failed in an unexpected way; the log says more.")
        response = BatchResponse(500, request_id, msgspec.Raw(errors.encoded(failure)))
    return BatchOutput(_new_id(), request.custom_id, response, None)


async def _patient(server: ServerState, endpoint: Endpoint, fields: dict[str, Any]) -> bytes:
    """The encoded answer; waits while the queue is full, which it is only with other lines."""
    while True:
        try:
            answer = await invoke(server, endpoint, fields, ANONYMOUS)
        except ApiError as error:
            if error.status != 429:
                raise
            await asyncio.sleep(error.retry_after_s)
            continue
        if isinstance(answer, msgspec.Struct):
            return msgspec.json.encode(answer)
        assert not isinstance(answer, Text), "an endpoint with a task answers with JSON"
        answer.close()
        raise bad_request("`stream` must be false in a batch file.", "stream")


def _endpoint(url: str) -> Endpoint:
    """The row of a line's url.

    Raises:
        ApiError: 404 for a url that batch files cannot have.
    """
    rows = {row.path: row for row in ENDPOINTS if row.transport is Transport.JSON and row.task}
    if url not in rows:
        known = ", ".join(rows)
        raise ApiError(404, f"The url {url[:200]!r} is not one of {known}.", "url")
    return rows[url]


def _new_id() -> str:
    return f"batch_req_{secrets.token_hex(16)}"
