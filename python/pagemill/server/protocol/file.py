"""Bodies of `/v1/files`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules

MAX_FILE_ID_CHARS = 128
MOST_EXPIRE_S = 30 * 86400
FileId = Annotated[str, Meta(max_length=MAX_FILE_ID_CHARS)]


UploadPurpose = Literal["batch", "user_data"]
Purpose = Literal["batch", "batch_output", "user_data"]


class ExpiresAfter(msgspec.Struct, kw_only=True, frozen=True):
    """When a file is deleted; `seconds` after it was created."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=3600, le=MOST_EXPIRE_S)]


class UploadedFile(ABC):
    """The part of a form that is a file, and has been stored."""

    @abstractmethod
    async def keep(self, purpose: UploadPurpose, expires_after_s: int | None) -> FileObject:
        """The file stays, for `purpose`, when the request is over."""


class UploadRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The fields of the form."""

    file: UploadedFile
    purpose: UploadPurpose
    expires_after: ExpiresAfter | None = None


class FileName(msgspec.Struct, kw_only=True, frozen=True):
    """Names a file."""

    file_id: FileId


class ListFilesRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A page of files; `after` is the last file of the page before."""

    after: FileId | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: Purpose | None = None


RULES = FieldRules(unsupported={}, ignored=frozenset())


class FileObject(msgspec.Struct, kw_only=True):
    """A file. The server writes those of `batch_output`; requests name those of `user_data`."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Purpose
    object: str = "file"
    status: str = "processed"


CONTENT = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
"""A file's bytes."""


class FileList(msgspec.Struct):
    """One page."""

    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class DeletedFile(msgspec.Struct):
    """A file that is stored no longer."""

    id: str
    object: str = "file"
    deleted: bool = True
