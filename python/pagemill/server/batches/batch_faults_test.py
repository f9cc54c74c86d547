"""Disks that are full, servers that end, processes that share a folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pagemill.server.batch import BatchError, BatchOutput, failed_line
from pagemill.server.batches import files
from pagemill.server.batches.answers import AnswerFile
from pagemill.server.batches.files import BatchFiles
from pagemill.server.batches.folder import BatchFolder, locked_folder
from pagemill.server.protocol.file import FileObject
from pagemill.server.testing.batch_service import (
    config_of,
    lines,
    run_service,
    service,
    slow,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes look often."""
    for name in ("run._LOOK_S", "worker._LOOK_S", "worker._AFTER_FAILURE_S"):
        monkeypatch.setattr(f"pagemill.server.batches.{name}", 0.02)


@contextlib.contextmanager
def full_disk(file_bytes: int) -> Generator[None]:
    """No file can be larger: writes fail as on a full disk, in this whole process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_refuses_uploads_and_loses_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, num_workers=0) as client:
            kept = await client.upload(lines(3))
            with full_disk(400_000):
                error = await client.upload(b"x" * 1_000_000, 507)
                assert error["error"]["type"] == "InsufficientStorageError"
                assert str(tmp_path) in error["error"]["message"]
                assert "--batch-dir" in error["error"]["message"]
                content = await client.request("GET", f"/v1/files/{kept['id']}/content")
                assert content.content == lines(3)
            assert [each["id"] for each in (await client.get("/v1/files"))["data"]] == [kept["id"]]
            await client.upload(b"x" * 1_000_000)

    run_service(body)


def test_a_disk_that_fills_fails_the_batch_and_keeps_its_answers(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path) as client:
            other = await client.upload(lines(2))
            file = await client.upload(lines(3000))
            with full_disk(300_000):  # the answers have 1 MB, the list of files 100 kB
                batch = await client.ended((await client.create(file["id"]))["id"])
            assert batch["status"] == "failed"
            (problem,) = batch["errors"]["data"]
            assert problem["code"] == "insufficient_storage"
            assert str(tmp_path) in problem["message"] and "--batch-dir" in problem["message"]
            counts = batch["request_counts"]
            assert 0 < counts["completed"] < counts["total"] == 3000
            answers = await client.answers(batch["output_file_id"])
            assert len({each["custom_id"] for each in answers}) == len(answers)
            assert counts["completed"] == len(answers)
            assert client.server.async_engine.num_live == 0
            batch = await client.ended((await client.create(other["id"]))["id"])
            assert batch["status"] == "completed"

    run_service(body)


def test_what_is_being_written_when_a_batch_ends_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all = files._write_all  # pyright: ignore[reportPrivateUsage]

    def slowly(descriptor: int, data: bytes, start: int) -> None:
        time.sleep(0.05)  # far longer than answering: nearly always something is being written
        write_all(descriptor, data, start)

    async def body() -> None:
        async with service(tmp_path) as client:
            file = await client.upload(lines(1000))
            monkeypatch.setattr(files, "_write_all", slowly)
            for num_completed in range(3):
                batch_id = (await client.create(file["id"]))["id"]
                await client.until(
                    batch_id,
                    lambda batch, least=num_completed: batch["request_counts"]["completed"] > least,
                )
                await client.request("POST", f"/v1/batches/{batch_id}/cancel")
                batch = await client.ended(batch_id)
                assert batch["status"] == "cancelled" and batch["errors"] is None
                answers = await client.answers(batch["output_file_id"])
                assert batch["request_counts"]["completed"] == len(answers)

    run_service(body)


def test_of_cancelled_answers_those_that_are_being_written_stay(tmp_path: Path) -> None:
    def answer(custom_id: str) -> BatchOutput:
        return failed_line(BatchError("code", "message"), custom_id)

    async def body() -> None:
        config = config_of(tmp_path)
        with locked_folder(config):
            folder = BatchFolder(config, str(tmp_path))
            writer = await BatchFiles(folder).create("", "batch_output", "name", "batch")
            answers = AnswerFile(writer, set())
            go_on = threading.Event()
            holder = asyncio.create_task(folder.run(lambda connection: go_on.wait(60)))
            tasks: list[asyncio.Task[None]] = []
            for custom_id in "abc":  # c waits for b, and leaves nothing behind
                tasks.append(asyncio.create_task(answers.append(answer(custom_id))))
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0.01)
            tasks[0].cancel()  # in vain: its answer is with the folder's thread
            go_on.set()
            await asyncio.gather(holder, *tasks, return_exceptions=True)
            assert answers.custom_ids == {"a"}
            await answers.append(answer("d"))
            assert answers.custom_ids == {"a", "d"}
            content = folder.content(writer.file_id).read_bytes().splitlines()
            assert [json.loads(line)["custom_id"] for line in content] == ["a", "d"]
            answers.close()
            await folder.close()

    run_service(body)


def test_a_restart_continues(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, slow(0.02)) as client:
            batch_id = await client.begin(lines(300))
            await client.until(batch_id, lambda batch: batch["request_counts"]["completed"] > 8)
        # What a crash leaves of a line, and of an upload.
        (output,) = (p for p in (tmp_path / "files").iterdir() if b"batch_req" in p.read_bytes())
        with output.open("ab") as file:
            file.write(b'{"custom_id": "r299", "resp')
        (tmp_path / "files" / "file-lost").write_bytes(b"x")
        done = output.read_bytes().rpartition(b"\n")[0]
        async with service(tmp_path) as client:
            batch = await client.ended(batch_id)
            assert batch["request_counts"] == {"total": 300, "completed": 300, "failed": 0}
            content = await client.request("GET", f"/v1/files/{batch['output_file_id']}/content")
            assert content.content.startswith(done + b"\n") and len(done.splitlines()) > 8
            answers = await client.answers(batch["output_file_id"])
            assert sorted(each["custom_id"] for each in answers) == sorted(
                f"r{i}" for i in range(300)
            )
        assert not (tmp_path / "files" / "file-lost").exists()

    run_service(body)


def test_a_drain_lets_requests_end_and_keeps_the_rest(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, slow()) as client:
            batch_id = await client.begin(lines(1000))
            await client.until(batch_id, lambda batch: batch["request_counts"]["completed"] > 4)
            client.server.state.lifecycle.begin_drain()
            (worker,) = client.workers
            worker.stop()
            assert await client.server.state.lifecycle.wait_idle(60)
            found = await client.server.state.batch_store.queue.get("", batch_id)
            assert found.status == "in_progress"
            assert client.server.async_engine.num_live == 0

    run_service(body)


def test_processes_share_the_work(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, slow(), num_workers=3) as client:
            ids = [await client.begin(lines(40)) for _ in range(5)]
            for batch_id in ids:
                batch = await client.ended(batch_id)
                assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
                answers = await client.answers(batch["output_file_id"])
                assert len({each["custom_id"] for each in answers}) == len(answers) == 40

    run_service(body)


def test_an_end_that_was_interrupted_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = lines(1, prompt=5).replace(b"r0", b"bad")
    complete = BatchFiles.complete
    calls = 0

    async def fail_once(self: BatchFiles, *args: Any) -> FileObject:
        nonlocal calls
        calls += 1
        if calls == 2:  # the file of answers is complete, that of errors is not
            raise RuntimeError("a crash")
        return await complete(self, *args)

    async def body() -> None:
        async with service(tmp_path) as client:
            file = await client.upload(lines(3) + refused)
            monkeypatch.setattr(BatchFiles, "complete", fail_once)
            batch = await client.ended((await client.create(file["id"]))["id"])
            assert batch["status"] == "completed" and calls == 3
            assert len(await client.answers(batch["output_file_id"])) == 3
            assert len(await client.answers(batch["error_file_id"])) == 1

    run_service(body)
