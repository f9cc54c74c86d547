"""The two files of a batch's answers: of requests that succeeded, and of the others."""

from __future__ import annotations

import asyncio

import msgspec

from pagemill.server.batch import BatchOutput
from pagemill.server.batches.files import BatchFiles, FileWriter, OpenFile
from pagemill.server.batches.input import answered
from pagemill.server.batches.queue import Held
from pagemill.server.errors import ApiError
from pagemill.server.protocol.batch import Batch

_NAMES = ("output.jsonl", "error.jsonl")


class AnswerFile:
    """One of them, and the `custom_ids` that it answers. Answers that come while others are being
    written are written together."""

    def __init__(self, writer: FileWriter, custom_ids: set[str]) -> None:
        self._writer = writer
        self.custom_ids = custom_ids
        self._lock = asyncio.Lock()
        self._waiting: list[BatchOutput] = []
        self._failure: ApiError | None = None

    @property
    def file_id(self) -> str | None:
        """Its id; None if it has no answers."""
        return self._writer.file_id if self._writer.size else None

    async def append(self, output: BatchOutput) -> None:
        """Appends an answer; returns when it is written.

        Raises:
            ApiError: there is no room, or there was none before.
        """
        self._waiting.append(output)
        try:
            async with self._lock:
                await self._write_waiting()
        except asyncio.CancelledError:
            # It may be answered otherwise.
            self._waiting = [each for each in self._waiting if each is not output]
            raise

    async def _write_waiting(self) -> None:
        if self._failure is not None:
            raise self._failure
        outputs, self._waiting = self._waiting, []
        if not outputs:
            return
        lines = (msgspec.json.encode(each) + b"\n" for each in outputs)
        size = self._writer.size
        try:
            await self._writer.write(b"".join(lines))
        except ApiError as error:
            self._failure = error
            raise
        finally:
            if self._writer.size > size:  # perhaps although this was cancelled
                self.custom_ids.update(str(each.custom_id) for each in outputs)

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

    def __init__(self, completed: AnswerFile, failed: AnswerFile) -> None:
        self._completed = completed
        self._failed = failed

    @property
    def custom_ids(self) -> frozenset[str]:
        """The requests that have an answer."""
        return frozenset(self._completed.custom_ids) | self._failed.custom_ids

    @classmethod
    async def open(cls, files: BatchFiles, held: Held) -> Answers:
        """Continues the files of an earlier run, or begins new ones.

        Raises:
            ApiError: there is no room for them.
        """
        begun = {file.filename: file for file in await files.open_files(held.batch_id)}
        opened: list[AnswerFile] = []
        for end in _NAMES:
            name = f"{held.batch_id}_{end}"
            if name in begun:
                opened.append(await _reopen(files, begun[name]))
            else:
                writer = await files.create(held.owner, "batch_output", name, held.batch_id)
                opened.append(AnswerFile(writer, set()))
        return cls(*opened)

    async def write(self, output: BatchOutput) -> bool:
        """Writes one answer; whether its request succeeded.

        Raises:
            ApiError: there is no room.
        """
        assert output.custom_id is not None, "every line of the file was found to be a request"
        succeeded = output.response is not None and output.response.status_code == 200
        await (self._completed if succeeded else self._failed).append(output)
        return succeeded

    def count(self, batch: Batch) -> None:
        """Says in `batch` how many answers there are."""
        batch.request_counts.completed = len(self._completed.custom_ids)
        batch.request_counts.failed = len(self._failed.custom_ids)

    def name(self, batch: Batch) -> None:
        """Says in `batch` which files it has."""
        batch.output_file_id = self._completed.file_id
        batch.error_file_id = self._failed.file_id

    async def end(self, batch: Batch) -> None:
        """The files exist for their key, except an empty one."""
        expiry = batch.output_expires_after
        for file in (self._completed, self._failed):
            await file.end(None if expiry is None else expiry.seconds)

    def close(self) -> None:
        """Writes no more."""
        self._completed.close()
        self._failed.close()


async def complete_rest(files: BatchFiles, held: Held, batch: Batch) -> None:
    """Completes those files of `batch` that an earlier run has not, when it has named them.

    Raises:
        ApiError: the disk is full, or fails.
    """
    expiry = batch.output_expires_after
    for file in await files.open_files(held.batch_id):
        answer_file = await _reopen(files, file)
        await answer_file.end(None if expiry is None else expiry.seconds)


async def _reopen(files: BatchFiles, file: OpenFile) -> AnswerFile:
    custom_ids, size = await asyncio.to_thread(answered, files.folder.content(file.id))
    return AnswerFile(await files.reopen(file, size), custom_ids)
