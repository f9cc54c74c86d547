"""Bodies of `/v1/batches`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.file import ExpiresAfter, FileId

MAX_METADATA = 16
_Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=MAX_METADATA),
]
BatchStatus = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
URLS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v1/responses",
    "/v1/score",
)
"""Endpoints of this server that a batch may be for."""
ENDED: frozenset[BatchStatus] = frozenset({"failed", "completed", "expired", "cancelled"})


class CreateBatchRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request. `endpoint` is the url of every line of the file: of `URLS`, or a plugin's."""

    input_file_id: FileId
    endpoint: Annotated[str, Meta(max_length=512)]
    completion_window: Literal["24h"]
    metadata: _Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchName(msgspec.Struct, kw_only=True, frozen=True):
    """Names a batch."""

    batch_id: FileId


class ListBatchesRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A page of batches, the newest first; `after` is the last one of the page before."""

    after: FileId | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


RULES = FieldRules(unsupported={}, ignored=frozenset({"request_id"}))


class BatchProblem(msgspec.Struct):
    """Why a batch failed. `line` of its file; null if it is not about a line."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchProblems(msgspec.Struct):
    """The first of them."""

    data: list[BatchProblem]
    object: str = "list"


class RequestCounts(msgspec.Struct):
    """Requests of a batch; `failed` ones are in its error file. Those of an `expired` batch that
    were not answered are among them."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    expired: int | UnsetType = UNSET


class Batch(msgspec.Struct, kw_only=True):
    """A batch. Times are Unix times in seconds; null: it did not come to that."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    status: BatchStatus = "validating"
    errors: BatchProblems | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = msgspec.field(default_factory=RequestCounts)
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None
    object: str = "batch"


class BatchList(msgspec.Struct):
    """One page."""

    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"
