"""`/v1/files`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import FileContent
from pagemill.server.protocol.file import (
    DeletedFile,
    FileList,
    FileName,
    FileObject,
    ListFilesRequest,
    UploadRequest,
)
from pagemill.server.state import ServerState


async def upload(server: ServerState, body: UploadRequest, caller: Caller) -> FileObject:
    """Stores a file of requests for a batch, or one that requests name."""
    del server, caller
    expiry = body.expires_after
    return await body.file.keep(body.purpose, None if expiry is None else expiry.seconds)


async def list_files(server: ServerState, body: ListFilesRequest, caller: Caller) -> FileList:
    """The files of the key: those that it uploaded, and those with the answers of its batches."""
    return await server.batch_store.files.page(caller.key_id, body)


async def retrieve(server: ServerState, body: FileName, caller: Caller) -> FileObject:
    """What is known of a file."""
    return await server.batch_store.files.get(caller.key_id, body.file_id)


async def content(server: ServerState, body: FileName, caller: Caller) -> FileContent:
    """A file's content."""
    path = await server.batch_store.files.content(caller.key_id, body.file_id)
    return FileContent(path, "application/octet-stream")


async def delete(server: ServerState, body: FileName, caller: Caller) -> DeletedFile:
    """Deletes a file, unless a batch that has not ended needs it."""
    await server.batch_store.files.delete(caller.key_id, body.file_id)
    return DeletedFile(body.file_id)
