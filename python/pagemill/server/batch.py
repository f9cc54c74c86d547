"""OpenAI's batch files: a request on each line, answered by the handlers that answer HTTP. Both
`pagemill batch` and `/v1/batches` run on it.

A line is `{"custom_id", "method": "POST", "url", "body"}`; its answer is `{"id", "custom_id",
"response": {"status_code", "request_id", "body"}, "error"}`. A request that is refused has the
refusal's status and error object in `response`; a line that is not a request has `error` instead.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.answer import Answer, Binary, FileContent, Portions, Talk, Text
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.plugins import PREFIX
from pagemill.server.error_shapes import OPENAI
from pagemill.server.errors import ApiError, bad_request, binary_answer
from pagemill.server.protocol.decode import explain
from pagemill.server.protocol.request_id import named

_LOGGER = logging.getLogger("pagemill.server")


class BatchRequest(msgspec.Struct):
    """A line of the input."""

    custom_id: Annotated[str, Meta(max_length=512)]
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


Send = Callable[[Endpoint, dict[str, Any]], Awaitable[Answer]]
"""`invoke_line`, for the callers that the requests of a batch have."""
Write = Callable[[BatchOutput], Awaitable[None]]


class LineError(Exception):
    """A line that is not a request."""

    def __init__(self, code: str, reason: str, custom_id: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.custom_id = custom_id


def read_line(line: bytes, seen: set[str]) -> BatchRequest:
    """The request on a line; its `custom_id` is added to those that were `seen` before.

    Raises:
        LineError: it is not a request.
    """
    try:
        request = msgspec.json.decode(line, type=BatchRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineError("invalid_request", _reason(error)) from error
    if request.custom_id in seen:
        reason = "an earlier line has this `custom_id`."
        raise LineError("duplicate_custom_id", reason, request.custom_id)
    seen.add(request.custom_id)
    return request


def read_lines(lines: Iterable[bytes]) -> Iterator[BatchRequest | BatchOutput]:
    """The request of each line that is not blank, or the answer to what is not a request."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield read_line(line, seen)
        except LineError as error:
            reason = f"Line {number}: {error.reason}"
            yield failed_line(BatchError(error.code, reason), error.custom_id)


def failed_line(error: BatchError, custom_id: str | None) -> BatchOutput:
    """The answer to a line that was not sent."""
    return BatchOutput(_new_id(), custom_id, None, error)


def line_urls(endpoints: Iterable[Endpoint]) -> dict[str, Endpoint]:
    """Those of `endpoints` that lines of batch files may have, by their urls: they work on a body,
    as the task of a model or in a plugin."""
    return {
        row.path: row
        for row in endpoints
        if row.method == "POST"
        and row.transport in (Transport.JSON, Transport.AUDIO_FORM)
        and (row.tasks or row.path.startswith(PREFIX))
    }


async def answer_lines(
    lines: Iterator[BatchRequest | BatchOutput],
    urls: Mapping[str, Endpoint],
    send: Send,
    write: Write,
    concurrency: int,
) -> None:
    """Sends every request, at most `concurrency` at once, and writes the answers. `urls`: see
    `line_urls`.

    Answers are written as they come, so not in the order of the lines: `custom_id` tells them
    apart. Lines are read as there is room for them.
    """

    async def work() -> None:
        for line in lines:
            await write(line if isinstance(line, BatchOutput) else await _answer(urls, send, line))

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return explain(error)[0]
    return "it is nested too deeply." if isinstance(error, RecursionError) else "it is not JSON."


async def _answer(urls: Mapping[str, Endpoint], send: Send, request: BatchRequest) -> BatchOutput:
    request_id = secrets.token_hex(16)
    errors = urls[request.url].errors if request.url in urls else OPENAI
    try:
        fields, request_id = named(request.body, request_id)
        body = await _patient(send, _endpoint(urls, request.url), fields)
        response = BatchResponse(200, request_id, msgspec.Raw(body))
    except ApiError as error:
        response = BatchResponse(error.status, request_id, msgspec.Raw(errors.encoded(error)))
    except Exception:
        _LOGGER.exception("the request %r failed", request.custom_id[:100])
        failure = ApiError(500, "The request failed in an unexpected way; the log says more.")
        response = BatchResponse(500, request_id, msgspec.Raw(errors.encoded(failure)))
    return BatchOutput(_new_id(), request.custom_id, response, None)


async def _patient(send: Send, endpoint: Endpoint, fields: dict[str, Any]) -> bytes:
    """The encoded answer; waits while the queue is full, or the limits of the key are reached."""
    if fields.get("background"):
        raise bad_request("`background` must be false in a batch file.", "background")
    while True:
        try:
            answer = await send(endpoint, fields)
        except ApiError as error:
            if error.status != 429:
                raise
            await asyncio.sleep(error.retry_after_s)
            continue
        if isinstance(answer, msgspec.Struct):
            return msgspec.json.encode(answer)
        if isinstance(answer, Binary):
            raise binary_answer()
        assert not isinstance(answer, Text | FileContent | Portions | Talk), (
            "a task's answers are JSON"
        )
        answer.close()
        raise bad_request("`stream` must be false in a batch file.", "stream")


def _endpoint(urls: Mapping[str, Endpoint], url: str) -> Endpoint:
    """The row of a line's url.

    Raises:
        ApiError: 404 for a url that batch files cannot have.
    """
    if url not in urls:
        known = ", ".join(urls)
        raise ApiError(404, f"The url {url[:200]!r} is not one of {known}.", "url")
    return urls[url]


def _new_id() -> str:
    return f"batch_req_{secrets.token_hex(16)}"
