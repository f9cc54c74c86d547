"""`/v1/responses` of a live server of several processes, which share what is stored."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
FRANCE = "What is the capital of France? Answer in one word."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ("--api-server-count", "2", "--max-model-len", "2048")
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), options) as running:
        yield running


def client_of(server: ServerProcess) -> openai.OpenAI:
    """A client with a connection of its own, which the system gives to either process."""
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


def test_a_stream_equals_the_whole(server: ServerProcess) -> None:
    request: dict[str, Any] = {"model": NAME, "input": FRANCE, "temperature": 0}
    whole = client_of(server).responses.create(**request, max_output_tokens=30)
    assert "Paris" in whole.output_text and whole.status == "completed"
    with client_of(server).responses.stream(**request) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text
    assert final.usage is not None and whole.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_every_process_continues_every_response(server: ServerProcess) -> None:
    def continued(_: int) -> None:
        first = client_of(server).responses.create(
            model=NAME, input="My name is Ada.", max_output_tokens=8, temperature=0
        )
        for _ in range(4):
            client = client_of(server)
            second = client.responses.create(
                model=NAME,
                input="What is my name?",
                previous_response_id=first.id,
                max_output_tokens=8,
                temperature=0,
            )
            assert client.responses.retrieve(second.id).output_text == second.output_text
            assert len(client.responses.input_items.list(second.id).data) == 3

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(continued, range(4)))


def test_every_process_reads_and_cancels_what_runs_in_the_background(
    server: ServerProcess,
) -> None:
    request: dict[str, Any] = {"model": NAME, "input": FRANCE, "temperature": 0}
    begun = client_of(server).responses.create(**request, background=True)
    while (ended := client_of(server).responses.retrieve(begun.id)).status == "in_progress":
        time.sleep(0.05)
    assert ended.status == "completed" and "Paris" in ended.output_text
    for _ in range(4):
        long = client_of(server).responses.create(
            **request, background=True, extra_body={"ignore_eos": True}
        )
        assert client_of(server).responses.cancel(long.id).status == "cancelled"
    server.wait_until_idle()


def test_an_answer_of_a_schema(server: ServerProcess) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    response = client_of(server).responses.create(
        model=NAME,
        input=FRANCE,
        text={"format": {"type": "json_schema", "name": "city", "schema": schema}},
        temperature=0,
    )
    assert json.loads(response.output_text)["city"] in ("Paris", "Rome")
