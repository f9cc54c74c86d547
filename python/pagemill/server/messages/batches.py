"""Batches of messages, as Anthropic's API has them, out of those of `/v1/batches`.

A batch of messages is one of `/v1/batches` whose requests are for `/v1/messages`: its file has a
line for each request, and its results are the lines of its files of answers in another wording.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pagemill.server.batch import BatchOutput, BatchRequest
from pagemill.server.batches.input import requests
from pagemill.server.error_shapes import ANTHROPIC
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.batch import ENDED, Batch
from pagemill.server.protocol.message_batches import (
    BatchedMessage,
    MessageBatch,
    MessageBatchCounts,
)

URL = "/v1/messages"
_BUFFER_BYTES = 2**20
_PORTION_BYTES = 2**16
_decode = msgspec.json.Decoder(BatchOutput).decode


class _Refusal(msgspec.Struct):
    message: str


class _Refused(msgspec.Struct):
    """An error object of OpenAI's API, which files of answers have."""

    error: _Refusal


def input_lines(messages: Iterable[BatchedMessage]) -> Iterator[bytes]:
    """The lines of the file of a batch, several at a time.

    Raises:
        ApiError: 400: two requests have the same `custom_id`.
    """
    seen: set[str] = set()
    portion: list[bytes] = []
    size = 0
    for message in messages:
        if message.custom_id in seen:
            name = message.custom_id[:100]
            raise bad_request(f"`requests`: {name!r} is the `custom_id` of two.", "requests")
        seen.add(message.custom_id)
        request = BatchRequest(message.custom_id, "POST", URL, message.params)
        portion.append(msgspec.json.encode(request) + b"\n")
        size += len(portion[-1])
        if size >= _PORTION_BYTES:
            yield b"".join(portion)
            portion, size = [], 0
    if portion:
        yield b"".join(portion)


def message_batch(batch: Batch) -> MessageBatch:
    """`batch` in the wording of Anthropic's API."""
    ended = batch.status in ENDED
    status = "canceling" if batch.status == "cancelling" else "in_progress"
    end = batch.completed_at or batch.cancelled_at or batch.expired_at or batch.failed_at
    return MessageBatch(
        id=batch.id,
        processing_status="ended" if ended else status,
        request_counts=_counts(batch),
        created_at=_time(batch.created_at),
        expires_at=_time(batch.expires_at),
        ended_at=_time(end) if ended and end else None,
        cancel_initiated_at=_time(batch.cancelling_at) if batch.cancelling_at else None,
        results_url=f"{URL}/batches/{batch.id}/results" if ended else None,
    )


def results(batch: Batch, asked: Path, answers: Sequence[Path]) -> Iterator[bytes]:
    """The lines of the results of a batch that has ended, several at a time: those of requests that
    were answered, then those of others.

    Args:
        batch: the batch.
        asked: the file of its requests.
        answers: the files of its answers.

    Raises:
        OSError: a file cannot be read.
    """
    portion: list[bytes] = []
    size = 0
    for line in _result_lines(batch, asked, answers):
        portion.append(line)
        size += len(line)
        if size >= _PORTION_BYTES:
            yield b"".join(portion)
            portion, size = [], 0
    yield b"".join(portion)


def _result_lines(batch: Batch, asked: Path, answers: Sequence[Path]) -> Iterator[bytes]:
    answered: set[str] = set()
    for path in answers:
        with path.open("rb", _BUFFER_BYTES) as file:
            for line in file:
                output = _decode(line)
                assert output.custom_id is not None, "every request of a batch has one"
                answered.add(output.custom_id)
                yield _line(output.custom_id, _result(output))
    result: dict[str, Any] = {"type": "canceled"}
    if batch.status == "failed":
        problems = batch.errors.data if batch.errors is not None else []
        reason = problems[0].message if problems else "The batch failed."
        result = _errored(ApiError(500, reason))
    for request in requests(asked, answered):
        yield _line(request.custom_id, result)


def _result(output: BatchOutput) -> dict[str, Any]:
    response = output.response
    if response is not None and response.status_code == 200:
        return {"type": "succeeded", "message": response.body}
    if response is not None:
        message = msgspec.json.decode(response.body, type=_Refused).error.message
        return _errored(ApiError(response.status_code, message))
    assert output.error is not None, "an answer has a response or an error"
    if output.error.code == "batch_expired":
        return {"type": "expired"}
    return _errored(ApiError(400, output.error.message))


def _errored(error: ApiError) -> dict[str, Any]:
    return {"type": "errored", "error": ANTHROPIC.written(error, error.message)}


def _line(custom_id: str, result: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"custom_id": custom_id, "result": result}) + b"\n"


def _counts(batch: Batch) -> MessageBatchCounts:
    counts = batch.request_counts
    if batch.status not in ENDED:
        return MessageBatchCounts(processing=counts.total)
    left = counts.total - counts.completed - counts.failed
    expired = counts.expired or 0
    failed = counts.failed - expired + (left if batch.status == "failed" else 0)
    canceled = left if batch.status == "cancelled" else 0
    return MessageBatchCounts(
        succeeded=counts.completed, errored=failed, canceled=canceled, expired=expired
    )


def _time(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()
