"""The two files of a batch's answers: of requests that succeeded, and of the others."""

from __future__ import annotations

import asyncio

import msgspec

from pagemill.server.batch import BatchOutput
from pagemill.server.batches.files import BatchFiles, FileWriter, OpenFile
from pagemill.server.batches.input import answers
from pagemill.server.batches.queue import Held
from pagemill.server.errors import ApiError
from pagemill.server.protocol.batch import Batch

_NAMES = ("output.jsonl", "error.jsonl")


class AnswerFile:
    """One of them. Lines that come while others are being written are written together."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()
        self._waiting: list[bytes] = []
        self._failure: ApiError | None = None

    @property
    def file_id(self) -> str | None:
        """Its id; None if it has no answers."""
        return self._writer.file_id if self._writer.size else None

    async def append(self, line: bytes) -> None:
        """Appends a line; returns when it is written.

        Raises:
            ApiError: there is no room, or there was none before.
        """
        self._waiting.append(line)
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            lines, self._waiting = self._waiting, []
            try:
                if lines:
                    await self._writer.write(b"".join(lines))
            except ApiError as error:
                self._failure = error
                raise

    async def end(self, expires_after_s: int | None) -> None:
        """The file exists for its key, if it has answers."""
        if self._writer.size:
            await self._writer.complete(expires_after_s)
        else:
            await self._writer.discard()

    def close(self) -> None:
        """Writes no more."""
        self._writer.close()


class Answers:
    """What a batch has answered so far, in this run and in those before."""

    def __init__(self, files: tuple[AnswerFile, AnswerFile], found: tuple[set[str], set[str]]):
        self._files = files
        self.num_completed, self.num_failed = map(len, found)
        self.custom_ids = found[0] | found[1]

    @classmethod
    async def open(cls, files: BatchFiles, held: Held) -> Answers:
        """Continues the files of an earlier run, or begins new ones.

        Raises:
            ApiError: there is no room for them.
        """
        begun = {file.filename: file for file in await files.open_files(held.batch_id)}
        opened: list[AnswerFile] = []
        found: list[set[str]] = []
        for end in _NAMES:
            name = f"{held.batch_id}_{end}"
            if name in begun:
                writer, custom_ids = await _reopen(files, begun[name])
            else:
                writer = await files.create(held.owner, "batch_output", name, held.batch_id)
                custom_ids = set[str]()
            opened.append(AnswerFile(writer))
            found.append(custom_ids)
        return cls((opened[0], opened[1]), (found[0], found[1]))

    async def write(self, output: BatchOutput) -> None:
        """Writes one answer.

        Raises:
            ApiError: there is no room.
        """
        succeeded = output.response is not None and output.response.status_code == 200
        await self._files[0 if succeeded else 1].append(msgspec.json.encode(output) + b"\n")
        self.num_completed += succeeded
        self.num_failed += not succeeded
        if output.custom_id is not None:
            self.custom_ids.add(output.custom_id)

    def count(self, batch: Batch) -> None:
        """Says in `batch` how many answers there are, and where they will be."""
        batch.request_counts.completed = self.num_completed
        batch.request_counts.failed = self.num_failed

    def name(self, batch: Batch) -> None:
        """Says in `batch` which files it has."""
        batch.output_file_id = self._files[0].file_id
        batch.error_file_id = self._files[1].file_id

    async def end(self, batch: Batch) -> None:
        """The files exist for their key, except an empty one."""
        expiry = batch.output_expires_after
        for file in self._files:
            await file.end(None if expiry is None else expiry.seconds)

    def close(self) -> None:
        """Writes no more."""
        for file in self._files:
            file.close()


async def complete_rest(files: BatchFiles, held: Held, batch: Batch) -> None:
    """Completes those files of `batch` that an earlier run has not, when it has named them.

    Raises:
        ApiError: the disk is full, or fails.
    """
    expiry = batch.output_expires_after
    for file in await files.open_files(held.batch_id):
        writer, _ = await _reopen(files, file)
        await AnswerFile(writer).end(None if expiry is None else expiry.seconds)


async def _reopen(files: BatchFiles, file: OpenFile) -> tuple[FileWriter, set[str]]:
    custom_ids, size = await asyncio.to_thread(answers, files.folder.content(file.id))
    return await files.reopen(file, size), custom_ids
