"""`/v1/batches`: from a file of requests to files of answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.batches import queue as batch_queue
from pagemill.server.batches import run as batch_run
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.limits.limiter import KeyLimits
from pagemill.server.protocol.batch import CreateBatchRequest
from pagemill.server.testing.batch_service import (
    MESSAGES,
    URL,
    Service,
    key,
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


def test_a_batch_from_upload_to_answers(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path) as client:
            refused = json.dumps(
                {"custom_id": "x", "method": "POST", "url": URL, "body": {"prompt": 5}}
            ).encode()
            content = lines(10) + b"\n" + refused
            file = await client.upload(content)
            assert (file["bytes"], file["purpose"]) == (len(content), "batch")
            assert file["filename"] == "in.jsonl"
            metadata = {"job": "nightly"}
            batch = await client.create(file["id"], metadata=metadata)
            assert batch["status"] == "validating" and batch["object"] == "batch"
            batch = await client.ended(batch["id"])
            assert batch["status"] == "completed", batch
            assert batch["request_counts"] == {"total": 11, "completed": 10, "failed": 1}
            assert batch["metadata"] == metadata
            assert batch["created_at"] <= batch["in_progress_at"] <= batch["completed_at"]
            good = await client.answers(batch["output_file_id"])
            assert {each["custom_id"] for each in good} == {f"r{i}" for i in range(10)}
            assert all(each["response"]["body"]["usage"] for each in good)
            (bad,) = await client.answers(batch["error_file_id"])
            assert (bad["custom_id"], bad["response"]["status_code"]) == ("x", 400)
            listed = await client.get("/v1/files?purpose=batch_output")
            ids = [batch["error_file_id"], batch["output_file_id"]]
            assert [each["id"] for each in listed["data"]] == ids
            assert (await client.get("/v1/batches"))["data"] == [batch]

    run_service(body)


@pytest.mark.parametrize(
    ("url", "fields", "size"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}, 0),
        ("/v1/responses", {"input": "a"}, 0),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 3}, 0),
        ("/v1/embeddings", {"input": "a"}, 4),
    ],
)
def test_endpoints(tmp_path: Path, url: str, fields: Any, size: int) -> None:
    async def body() -> None:
        async with service(tmp_path, FakeOptions(pooled_size=size)) as client:
            batch = await client.ended(await client.begin(lines(2, url, **fields), url=url))
            assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}, batch
            assert batch["error_file_id"] is None

    run_service(body)


def test_endpoints_of_plugins(tmp_path: Path) -> None:
    url = "/plugins/alpaca/shout"

    async def body() -> None:
        async with service(tmp_path) as client:
            file = await client.upload(lines(2, url, prompt="a", max_tokens=3))
            refused = await client.create(file["id"], 400, url=url)
            assert refused["error"]["param"] == "endpoint" and URL in refused["error"]["message"]
            row = replace(endpoint_named("completions"), name="shout", path=url, tasks=frozenset())
            reading = replace(row, name="herd", path="/plugins/alpaca/herd", method="GET")
            state = client.server.state
            state.endpoints = (*state.endpoints, row, reading)
            batch = await client.ended((await client.create(file["id"], url=url))["id"])
            assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}, batch
            await client.create(file["id"], 400, url=reading.path)

    run_service(body)


def test_metrics(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path) as client:
            good, bad = lines(2), lines(3, prompt="a" * 5000).replace(b'"r', b'"s')
            await client.ended(await client.begin(good + bad))
            await client.ended(await client.begin(b"{}"))
            async with asyncio.timeout(60):
                while 'status="failed"} 1.0' not in (text := await metrics(client)):
                    await asyncio.sleep(0.01)
            labels = 'engine="0",model_name="fake"'
            for line in (
                f'batch_requests_total{{{labels},outcome="completed"}} 2.0',
                f'batch_requests_total{{{labels},outcome="failed"}} 3.0',
                f'batches_total{{{labels},status="completed"}} 1.0',
            ):
                assert line in text, text

    run_service(body)


async def metrics(client: Service) -> str:
    return (await client.request("GET", "/metrics")).text


def test_a_file_that_is_wrong_fails_the_batch_before_it_begins(tmp_path: Path) -> None:
    cases = {
        b"{}\n": "custom_id",
        b"\n": "no requests",
        b'{"a":' * 10_000: "nested",
        lines(2) + lines(1): "custom_id",
        lines(1, "/v1/embeddings"): "is for /v1/completions",
        lines(6): "--batch-max-lines",
        lines(1, prompt="x" * 100_000): "--max-body-bytes",
    }

    async def body() -> None:
        async with service(tmp_path, batch_max_lines=5) as client:
            for content, reason in cases.items():
                batch = await client.ended(await client.begin(content))
                assert batch["status"] == "failed" and batch["output_file_id"] is None
                assert reason in batch["errors"]["data"][0]["message"], batch["errors"]

    run_service(body)


def test_cancelling_keeps_what_is_answered(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, slow()) as client:
            batch_id = await client.begin(lines(2000))
            await client.until(batch_id, lambda batch: batch["request_counts"]["completed"] > 4)
            asked = (await client.request("POST", f"/v1/batches/{batch_id}/cancel")).json()
            assert asked["status"] == "cancelling" and asked["cancelling_at"]
            batch = await client.ended(batch_id)
            assert batch["status"] == "cancelled" and batch["cancelled_at"]
            answers = await client.answers(batch["output_file_id"])
            assert 4 < len(answers) == batch["request_counts"]["completed"] < 2000
            assert client.server.async_engine.num_live == 0

    run_service(body)


def test_a_batch_that_was_not_begun_can_be_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, num_workers=0) as client:
            batch_id = await client.begin(lines(3))
            await client.request("POST", f"/v1/batches/{batch_id}/cancel")
        async with service(tmp_path) as client:
            batch = await client.ended(batch_id)
            assert (batch["status"], batch["output_file_id"]) == ("cancelled", None)

    run_service(body)


def test_an_expired_batch_says_so_of_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_queue, "WINDOW_S", 2)

    async def body() -> None:
        async with service(tmp_path, slow(0.02)) as client:
            batch = await client.ended(await client.begin(lines(3000)))
            assert batch["status"] == "expired" and batch["expired_at"]
            counts = batch["request_counts"]
            assert counts["failed"] > 0 and counts["completed"] + counts["failed"] == 3000
            errors = await client.answers(batch["error_file_id"])
            assert {each["error"]["code"] for each in errors} == {"batch_expired"}

    run_service(body)


def test_keys_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_run, "_TURN_S", 0.05)
    keys = [key("web"), key("app")]

    async def body() -> None:
        async with service(tmp_path, slow(), keys=keys) as client:
            long_id = await client.begin(lines(3000))
            short_id = await client.of("app").begin(lines(10))
            assert (await client.of("app").ended(short_id))["status"] == "completed"
            assert (await client.get(f"/v1/batches/{long_id}"))["status"] == "in_progress"

    run_service(body)


def test_a_key_that_is_gone_or_limited(tmp_path: Path) -> None:
    limited = key("app", limits=KeyLimits(requests_per_minute=3))

    async def body() -> None:
        async with service(tmp_path, keys=[key("web")], num_workers=0) as client:
            batch_id = await client.begin(lines(3))
        async with service(tmp_path, keys=[limited]) as client:
            file = await client.upload(lines(5))
            own_id = (await client.create(file["id"]))["id"]  # one of the three requests
            await client.until(own_id, lambda batch: batch["request_counts"]["completed"] == 2)
            queue = client.server.state.batch_store.queue
            gone = await queue.get("web", batch_id)
            assert gone.status == "failed" and gone.errors is not None
            assert gone.errors.data[0].code == "invalid_api_key"

    run_service(body)


def test_batches_run_after_other_requests(tmp_path: Path) -> None:
    async def body() -> None:
        ordered = key("web", priority=5)
        async with service(tmp_path, FakeOptions(), keys=[ordered], low_priority=True) as client:
            sent: list[int] = []
            submit = client.server.async_engine.submit

            async def spy(*args: Any, **options: Any) -> Any:
                sent.append(options["priority"])
                return await submit(*args, **{**options, "priority": 0})

            client.server.async_engine.submit = spy  # type: ignore[method-assign]
            await client.ended(await client.begin(lines(2)))
            assert sent == [5 + 2**30] * 2

    run_service(body)


BAD: dict[str, tuple[Any, ...]] = {
    "input_file_id": (5, None, "x" * 129, "absent"),
    "endpoint": (5, None, "/v1/models", "/v1/completions/render"),
    "completion_window": (5, None, "1h"),
    "metadata": (5, "x", {"a": 5}, {"x" * 65: "x"}, {"x": "x" * 513},
                 {str(i): "" for i in range(17)}),
    "output_expires_after": (5, {}, {"anchor": "now", "seconds": 3600},
                             {"anchor": "created_at", "seconds": 3599}),
}  # fmt: skip


def test_bad_fields_are_named(tmp_path: Path) -> None:
    assert BAD.keys() == set(CreateBatchRequest.__struct_fields__)

    async def body() -> None:
        async with service(tmp_path, num_workers=0) as client:
            file = await client.upload(lines(1))
            for field, values in BAD.items():
                for value in values:
                    if field == "input_file_id":
                        refused = await client.create(value, 404 if value == "absent" else 400)
                    elif field == "endpoint":
                        refused = await client.create(file["id"], 400, url=value)
                    else:
                        refused = await client.create(file["id"], 400, **{field: value})
                    assert refused["error"]["param"] == field, (field, value, refused)
            expiry = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "5"}
            for fields, param in (
                ({"purpose": "assistants"}, "purpose"),
                (expiry, "expires_after"),
                ({"expires_after": "5"}, "expires_after"),
            ):
                assert (await client.upload(b"", 400, **fields))["error"]["param"] == param
            without = await client.request("POST", "/v1/files", files={"purpose": (None, "batch")})
            assert without.status_code == 400 and without.json()["error"]["param"] == "file"
            assert len((await client.get("/v1/files"))["data"]) == 1
            assert len(list((tmp_path / "files").iterdir())) == 1

    run_service(body)
