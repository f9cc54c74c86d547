"""Times of one request, in its response."""

import asyncio
import json

import httpx
import pytest

from pagemill.observe.choice_account import ChoiceAccount
from pagemill.observe.metrics import ChoiceTimes
from pagemill.server.accounting import timings
from pagemill.server.records.timings import RequestTimings, server_timing
from pagemill.server.testing.fake_server import fake_server

_BODIES = (
    ("/v1/completions", {"prompt": "a"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
)


def _choice(first: float, last: float, num_tokens: int) -> ChoiceAccount:
    account = ChoiceAccount()
    account.first, account.last, account.num_tokens = first, last, num_tokens
    return account


def test_times_are_those_of_all_choices() -> None:
    choices = [_choice(11.0, 13.0, 5), _choice(10.5, 12.5, 3), _choice(0.0, 0.0, 0)]
    choices[0].times = ChoiceTimes(3.0, 2.0)  # ended by a stop string: the engine's are not known
    choices[1].times = ChoiceTimes(2.5, 2.0, 0.125, 0.25, 2.0)
    found = timings(choices, 10.0)
    assert found == RequestTimings(500, 2500, 125, 250, round(4000 / 6, 3), 6 / 2.5)
    assert server_timing(found) == (
        "queue;dur=125.0, prefill;dur=250.0, ttft;dur=500.0, generation;dur=2500.0"
    )
    assert timings([_choice(0.0, 0.0, 0)], 10.0) == RequestTimings()
    choices[0].drafts, choices[0].accepted_drafts, choices[1].drafts = 4, 3, 2
    choices[0].draft_steps, choices[1].draft_steps = 2, 1
    found = timings(choices, 10.0)
    assert (found.draft_tokens, found.accepted_draft_tokens, found.draft_steps) == (6, 3, 3)
    assert found.mean_acceptance_length == 2


def _events(got: httpx.Response) -> list[dict[str, object]]:
    data = [line.removeprefix("data: ") for line in got.text.splitlines() if line]
    assert data.pop() == "[DONE]"
    return [json.loads(each) for each in data]


@pytest.mark.parametrize(("path", "body"), _BODIES)
def test_a_response_has_its_times(path: str, body: dict[str, object]) -> None:
    async def run() -> None:
        payload = {**body, "max_tokens": 5, "ignore_eos": True}
        async with fake_server(per_request_metrics=True) as server:
            got = await server.client.post(path, json=payload)
            times = got.json()["metrics"]
            assert times["time_to_first_token_ms"] > 0
            assert times["mean_itl_ms"] == pytest.approx(times["generation_time_ms"] / 4, abs=0.01)
            assert times["queue_time_ms"] is not None
            header = got.headers["server-timing"]
            assert f"ttft;dur={times['time_to_first_token_ms']}" in header

            streamed = {**payload, "stream": True, "stream_options": {"include_usage": True}}
            *events, last = _events(await server.client.post(path, json=streamed))
            assert not [event for event in events if "metrics" in event]
            times = last["metrics"]
            assert isinstance(times, dict) and times["time_to_first_token_ms"] > 0

    asyncio.run(run())


@pytest.mark.parametrize(("path", "body"), _BODIES)
def test_a_response_has_no_times_unless_the_server_is_to_say_them(
    path: str, body: dict[str, object]
) -> None:
    async def run() -> None:
        async with fake_server() as server:
            payload = {**body, "max_tokens": 2}
            got = await server.client.post(path, json=payload)
            assert "metrics" not in got.json()
            assert "server-timing" not in got.headers
            streamed = {**payload, "stream": True, "stream_options": {"include_usage": True}}
            events = _events(await server.client.post(path, json=streamed))
            assert not [event for event in events if "metrics" in event]

    asyncio.run(run())


def test_times_that_are_not_known_are_null() -> None:
    async def run() -> None:
        async with fake_server(per_request_metrics=True) as server:
            payload = {"prompt": "a", "max_tokens": 1, "ignore_eos": True}
            times = (await server.client.post("/v1/completions", json=payload)).json()["metrics"]
            assert times["generation_time_ms"] == 0
            assert times["mean_itl_ms"] is times["tokens_per_second"] is None
            got = await server.client.post("/tokenize", json={"prompt": "a"})
            assert got.status_code == 200 and "server-timing" not in got.headers

    asyncio.run(run())
