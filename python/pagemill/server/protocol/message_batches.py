"""Bodies of `/v1/messages/batches`: Anthropic's Message Batches API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing
from pagemill.server.protocol.file import FileId


class BatchedMessage(msgspec.Struct, kw_only=True, frozen=True):
    """One request; `params` is a body of `/v1/messages`, which is checked when it is answered."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=512)]
    params: dict[str, Any]


class CreateMessageBatchRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The request."""

    requests: Annotated[list[BatchedMessage], Meta(min_length=1)]


class MessageBatchName(msgspec.Struct, kw_only=True, frozen=True):
    """Names a batch."""

    message_batch_id: FileId


class ListMessageBatchesRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A page of batches, the newest first; `after_id` is the last one of the page before."""

    after_id: FileId | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


RULES = FieldRules(
    unsupported={"before_id": Unsupported(nothing, "pages begin behind `after_id`.")},
    ignored=frozenset({"request_id", "beta", "user_profile_id"}),
)


class MessageBatchCounts(msgspec.Struct, kw_only=True):
    """Requests of a batch, by what became of them; all are `processing` until it has ended."""

    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class MessageBatch(msgspec.Struct, kw_only=True):
    """A batch. Times are of RFC 3339; null: it did not come to that."""

    id: str
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageBatchCounts
    created_at: str
    expires_at: str
    ended_at: str | None = None
    cancel_initiated_at: str | None = None
    archived_at: str | None = None
    results_url: str | None = None
    type: str = "message_batch"


class MessageBatchList(msgspec.Struct):
    """One page."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(msgspec.Struct):
    """A batch that is not kept any longer."""

    id: str
    type: str = "message_batch_deleted"
