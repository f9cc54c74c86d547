"""`/v1/files`: whose files are, how many and how large they may be, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagemill.config import ConfigError
from pagemill.server.batches.folder import locked_folder
from pagemill.server.testing.batch_service import (
    config_of,
    key,
    lines,
    run_service,
    service,
)
from pagemill.server.testing.fake_server import fake_server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes look often."""
    for name in ("run._LOOK_S", "worker._LOOK_S", "worker._AFTER_FAILURE_S"):
        monkeypatch.setattr(f"pagemill.server.batches.{name}", 0.02)


def test_files_and_batches_are_their_keys(tmp_path: Path) -> None:
    keys = [key("web"), key("app")]

    async def body() -> None:
        async with service(tmp_path, keys=keys) as client:
            other = client.of("app")
            file = await client.upload(lines(1))
            batch = await client.ended((await client.create(file["id"]))["id"])
            for path in (
                f"/v1/files/{file['id']}",
                f"/v1/files/{file['id']}/content",
                f"/v1/files?after={file['id']}",
                f"/v1/files/{batch['output_file_id']}/content",
                f"/v1/batches/{batch['id']}",
                f"/v1/batches?after={batch['id']}",
            ):
                await other.get(path, 404)
            await other.create(file["id"], 404)
            assert (await other.request("DELETE", f"/v1/files/{file['id']}")).status_code == 404
            cancel = f"/v1/batches/{batch['id']}/cancel"
            assert (await other.request("POST", cancel)).status_code == 404
            assert (await other.get("/v1/files"))["data"] == []
            assert (await other.get("/v1/batches"))["data"] == []
            assert (await client.request("POST", cancel)).json() == batch
            await client.create(batch["output_file_id"], 400)
            deleted = await client.request("DELETE", f"/v1/files/{file['id']}")
            assert deleted.json() == {"id": file["id"], "object": "file", "deleted": True}
            await client.get(f"/v1/files/{file['id']}", 404)

    run_service(body)


def test_pages(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, num_workers=0) as client:
            files = [(await client.upload(b"{}"))["id"] for _ in range(5)]
            batches = [(await client.create(files[0]))["id"] for _ in range(3)]
            page = await client.get("/v1/files?limit=2&order=asc")
            assert [each["id"] for each in page["data"]] == files[:2] and page["has_more"]
            page = await client.get(f"/v1/files?limit=5&order=asc&after={page['last_id']}")
            assert [each["id"] for each in page["data"]] == files[2:] and not page["has_more"]
            page = await client.get("/v1/batches?limit=2")
            assert [each["id"] for each in page["data"]] == batches[:0:-1] and page["has_more"]
            page = await client.get(f"/v1/batches?after={page['last_id']}")
            assert [each["id"] for each in page["data"]] == batches[:1] and not page["has_more"]
            for query in ("limit=0", "limit=x", "order=up", "purpose=x", "after=x"):
                await client.get(f"/v1/files?{query}", 404 if query == "after=x" else 400)

    run_service(body)


def test_the_limits_of_files(tmp_path: Path) -> None:
    limits = {
        "batch_file_bytes": 2048,
        "batch_dir_bytes": 2**20,
        "batch_max_files_per_key": 3,
        "batch_max_files": 4,
    }
    keys = [key("web"), key("app")]

    async def body() -> None:
        async with service(tmp_path, keys=keys, num_workers=0, **limits) as client:
            error = await client.upload(b"x" * 2049, 413)
            assert "--batch-file-bytes" in error["error"]["message"]
            await client.upload(b"x" * 500_000, 413)
            files = [(await client.upload(b"x" * 2048))["id"] for _ in range(3)]
            error = await client.upload(b"x", 400)
            assert "--batch-max-files-per-key" in error["error"]["message"]
            await client.of("app").upload(b"x")
            error = await client.of("app").upload(b"x", 507)
            assert "--batch-max-files" in error["error"]["message"]
            batches = [await client.create(files[0]) for _ in range(3)]
            error = await client.create(files[0], 429)
            assert "--batch-max-files-per-key" in error["error"]["message"]
            deleted = await client.request("DELETE", f"/v1/files/{files[0]}")
            assert deleted.status_code == 409 and batches[0]["id"] in deleted.text
        assert len(list((tmp_path / "files").iterdir())) == 4

    run_service(body)


def test_the_folder_is_full_to_the_flag(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, num_workers=0, batch_dir_bytes=2**20) as client:
            kept = await client.upload(b"x" * 1_000_000)
            error = await client.upload(b"x" * 100_000, 507)
            assert "--batch-dir-bytes" in error["error"]["message"]
            assert str(tmp_path) in error["error"]["message"]
            assert len(list((tmp_path / "files").iterdir())) == 1
            await client.request("DELETE", f"/v1/files/{kept['id']}")
            await client.upload(b"x" * 100_000)

    run_service(body)


def test_what_expires_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with service(tmp_path, num_workers=0) as client:
            await client.upload(b"{}", 400, **{"expires_after[anchor]": "created_at"})
            short = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
            file = await client.upload(b"{}", **short)
            assert file["expires_at"] == file["created_at"] + 3600
            kept = await client.upload(b"{}")
            needed = await client.upload(b"{}", **short)
            await client.create(needed["id"])
            store = client.server.state.batch_store
            later = file["expires_at"] + 1
            monkeypatch.setattr("pagemill.server.batches.files.unix_time", lambda: later)
            await store.files.delete_expired()
            left = {each["id"] for each in (await client.get("/v1/files"))["data"]}
            assert left == {kept["id"], needed["id"]}

    run_service(body)


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake_server() as server:
            for path in ("/v1/files", "/v1/batches", "/v1/files/x", "/v1/files/x/content"):
                response = await server.client.get(path)
                assert response.status_code == 404 and "--batch-dir" in response.text

    run_service(body)
    config = config_of(tmp_path)
    with (
        locked_folder(config),
        pytest.raises(ConfigError, match="another server"),
        locked_folder(config),
    ):
        pass
    (tmp_path / "file").write_bytes(b"")
    config = config_of(tmp_path / "file")
    with pytest.raises(ConfigError, match="--batch-dir"), locked_folder(config):
        pass
