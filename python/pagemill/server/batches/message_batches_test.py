"""`/v1/messages/batches`: batches of messages, their states and results."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pagemill.server.batches import run as batch_run
from pagemill.server.testing.batch_service import (
    MESSAGES,
    Service,
    key,
    lines,
    run_service,
    service,
    slow,
)

PATH = "/v1/messages/batches"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes look often."""
    for name in ("run._LOOK_S", "worker._LOOK_S", "worker._AFTER_FAILURE_S"):
        monkeypatch.setattr(f"pagemill.server.batches.{name}", 0.02)


def request(custom_id: str, **params: Any) -> dict[str, Any]:
    body = {"messages": MESSAGES, "max_tokens": 3, **params}
    return {"custom_id": custom_id, "params": body}


async def create(client: Service, requests: list[dict[str, Any]], status: int = 200) -> Any:
    response = await client.request("POST", PATH, json={"requests": requests})
    assert response.status_code == status, response.text
    return response.json()


async def results(client: Service, batch_id: str) -> dict[str, Any]:
    """What became of each request, by its `custom_id`."""
    response = await client.request("GET", f"{PATH}/{batch_id}/results")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-jsonl")
    found = [json.loads(line) for line in response.text.splitlines()]
    by_id = {each["custom_id"]: each["result"] for each in found}
    assert len(by_id) == len(found)
    return by_id


async def ended(client: Service, batch_id: str) -> Any:
    await client.ended(batch_id)
    batch = await client.get(f"{PATH}/{batch_id}")
    assert batch["processing_status"] == "ended"
    assert batch["results_url"] == f"{PATH}/{batch_id}/results"
    return batch


def counts(**of: int) -> dict[str, int]:
    names = ("processing", "succeeded", "errored", "canceled", "expired")
    return dict.fromkeys(names, 0) | of


def test_a_batch_from_requests_to_results(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path) as client:
            wrong = {"bad": {"max_tokens": 0}, "absent": {"model": "absent"}}
            sent = [request(f"r{i}") for i in range(7)]
            sent += [request(name, **params) for name, params in wrong.items()]
            batch = await create(client, sent)
            assert batch["type"] == "message_batch"
            assert batch["processing_status"] == "in_progress"
            assert batch["request_counts"] == counts(processing=9)
            assert batch["results_url"] is None and batch["ended_at"] is None
            batch = await ended(client, batch["id"])
            assert batch["request_counts"] == counts(succeeded=7, errored=2)
            times = [batch[name] for name in ("created_at", "ended_at", "expires_at")]
            assert sorted(times, key=datetime.fromisoformat) == times
            found = await results(client, batch["id"])
            assert found.keys() == {each["custom_id"] for each in sent}
            for i in range(7):
                message = found[f"r{i}"]["message"]
                assert found[f"r{i}"]["type"] == "succeeded"
                assert message["type"] == "message" and message["usage"]["output_tokens"] == 3
            for name, kind in (("bad", "invalid_request_error"), ("absent", "not_found_error")):
                assert found[name]["type"] == "errored"
                error = found[name]["error"]
                assert (error["type"], error["error"]["type"]) == ("error", kind)
            assert "max_tokens" in found["bad"]["error"]["error"]["message"]
            gone = await client.request("DELETE", f"{PATH}/{batch['id']}")
            assert gone.json() == {"id": batch["id"], "type": "message_batch_deleted"}
            refused = await client.get(f"{PATH}/{batch['id']}", 404)
            assert refused["error"]["type"] == "not_found_error"
            assert (await client.get("/v1/files"))["data"] == []

    run_service(body)


def test_a_batch_whose_files_are_gone_or_needed(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, slow()) as client:
            first = await ended(client, (await create(client, [request("a")]))["id"])
            found = await client.get(f"/v1/batches/{first['id']}")
            output = f"/v1/files/{found['output_file_id']}"
            assert (await client.request("DELETE", output)).status_code == 200
            refused = await client.get(f"{PATH}/{first['id']}/results", 404)
            assert "were deleted, or have expired" in refused["error"]["message"]
            second = await client.create(found["input_file_id"], url="/v1/messages")
            gone = await client.request("DELETE", f"{PATH}/{first['id']}")
            assert gone.status_code == 200, gone.text
            assert (await ended(client, second["id"]))["request_counts"] == counts(succeeded=1)
            empty = await client.request("HEAD", f"{PATH}/{second['id']}/results")
            assert empty.status_code == 200 and not empty.content

    run_service(body)


def test_a_batch_that_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, slow(), batch_concurrency=1) as client:
            sent = [request(f"r{i}", max_tokens=30) for i in range(40)]
            batch = await create(client, sent)
            path = f"{PATH}/{batch['id']}"
            for method, target in (("GET", f"{path}/results"), ("DELETE", path)):
                refused = await client.request(method, target)
                assert refused.status_code == 400 and "has not ended" in refused.text
            await client.until(batch["id"], lambda each: each["request_counts"]["completed"] > 1)
            cancelled = (await client.request("POST", f"{path}/cancel")).json()
            assert cancelled["processing_status"] == "canceling"
            assert cancelled["cancel_initiated_at"] is not None
            batch = await ended(client, batch["id"])
            succeeded = batch["request_counts"]["succeeded"]
            assert 1 < succeeded < 40
            assert batch["request_counts"] == counts(succeeded=succeeded, canceled=40 - succeeded)
            found = await results(client, batch["id"])
            kinds = [each["type"] for each in found.values()]
            assert len(kinds) == 40 and kinds.count("succeeded") == succeeded
            assert kinds.count("canceled") == 40 - succeeded
            again = (await client.request("POST", f"{path}/cancel")).json()
            assert again["processing_status"] == "ended"

    run_service(body)


def test_a_batch_that_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagemill.server.batches.queue.WINDOW_S", 1)

    async def body() -> None:
        async with service(tmp_path, slow(), batch_concurrency=1) as client:
            sent = [request("bad", max_tokens=0)]
            sent += [request(f"r{i}", max_tokens=60) for i in range(60)]
            batch = await ended(client, (await create(client, sent))["id"])
            found = await results(client, batch["id"])
            kinds = [each["type"] for each in found.values()]
            assert len(kinds) == 61 and kinds.count("errored") == 1
            assert batch["request_counts"] == counts(
                succeeded=kinds.count("succeeded"), errored=1, expired=kinds.count("expired")
            )
            assert kinds.count("expired") > 0

    run_service(body)


def test_a_batch_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: batch_run.BatchRun) -> Any:
        raise batch_run.ApiError(401, "There is no such key.")

    monkeypatch.setattr(batch_run.BatchRun, "_find_owner", refuse)

    async def body() -> None:
        async with service(tmp_path) as client:
            batch = await ended(client, (await create(client, [request("a"), request("b")]))["id"])
            assert batch["request_counts"] == counts(errored=2)
            found = await results(client, batch["id"])
            error = found["a"]["error"]["error"]
            assert error == {"type": "api_error", "message": "There is no such key."}

    run_service(body)


def test_pages_and_batches_of_others(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, keys=[key("red"), key("blue")]) as client:
            ids = [(await create(client, [request("a")]))["id"] for _ in range(3)]
            other = await client.begin(lines(1))
            for batch_id in (*ids, other):
                await client.ended(batch_id)
            newest_first = ids[::-1]
            page = await client.get(f"{PATH}?limit=2")
            assert [each["id"] for each in page["data"]] == newest_first[:2]
            assert page["has_more"] and page["last_id"] == newest_first[1]
            page = await client.get(f"{PATH}?limit=2&after_id={page['last_id']}")
            assert [each["id"] for each in page["data"]] == newest_first[2:]
            assert not page["has_more"]
            refused = await client.get(f"{PATH}?before_id={ids[0]}", 400)
            assert refused["error"]["type"] == "invalid_request_error"
            refused = await client.get(f"{PATH}/{other}", 404)
            assert "/v1/batches has it" in refused["error"]["message"]
            blue = client.of("blue")
            assert (await blue.get(PATH))["data"] == []
            for path in (f"{PATH}/{ids[0]}", f"{PATH}/{ids[0]}/results"):
                assert (await blue.get(path, 404))["type"] == "error"

    run_service(body)


def test_refusals(tmp_path: Path) -> None:
    async def body() -> None:
        async with service(tmp_path, batch_max_lines=2) as client:
            for requests, words in (
                ([], "`requests`"),
                ([request("a"), request("a")], "'a' is the `custom_id` of two"),
                ([request(str(i)) for i in range(3)], "at most 2 (--batch-max-lines)"),
                ([request("")], "custom_id"),
                ([{"custom_id": "a"}], "params"),
            ):
                refused = await create(client, requests, 400)
                assert refused["type"] == "error" and words in refused["error"]["message"]
            assert (await client.get("/v1/files"))["data"] == []
            assert (await client.get("/v1/batches"))["data"] == []

    run_service(body)
