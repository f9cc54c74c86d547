"""`/v1/completions` over the fake engine: shapes, echo, logprobs, stop, n, usage, streaming."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pagemill.engine.testing.fake_model import FakeOptions, next_token
from pagemill.server.testing.fake_server import FakeServer, fake_server

Body = dict[str, Any]


def run(test: Callable[[FakeServer], Awaitable[None]], options: FakeOptions | None = None) -> None:
    async def body() -> None:
        async with fake_server(options) as server:
            await test(server)
            assert server.async_engine.num_live == 0
            assert server.state.lifecycle.active == 0
            assert server.engine.stats().num_running == 0

    asyncio.run(body())


async def post(server: FakeServer, **body: Any) -> Body:
    response = await server.client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def stream(server: FakeServer, **body: Any) -> list[Body]:
    response = await server.client.post("/v1/completions", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [msgspec.json.decode(e.removeprefix("data: ")) for e in events[:-2]]


async def refuse(server: FakeServer, status: int, param: str | None, **body: Any) -> str:
    response = await server.client.post("/v1/completions", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (status, param)
    return error["message"]


def continued(prompt: str, seed: int, count: int) -> str:
    last, text = ord(prompt[-1]), ""
    for position in range(count):
        last = next_token(last, position, seed)
        text += chr(last)
    return text


def test_response() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, model="alias", prompt="hello", seed=3, max_tokens=5)
        assert got["object"] == "text_completion"
        assert got["model"] == "fake"
        assert got["id"].startswith("cmpl-")
        assert got["choices"] == [
            {
                "index": 0,
                "text": continued("hello", 3, 5),
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
                "prompt_logprobs": None,
            }
        ]
        assert got["usage"] == {
            "prompt_tokens": 5,
            "completion_tokens": 5,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    run(body)


def test_default_is_sixteen_tokens() -> None:
    async def body(server: FakeServer) -> None:
        assert (await post(server, prompt="x"))["usage"]["completion_tokens"] == 16

    run(body)


def test_prompt_shapes() -> None:
    async def body(server: FakeServer) -> None:
        text = continued("b", 1, 4)
        for prompt, count in (("ab", 1), ([97, 98], 1), (["ab", "b"], 2), ([[97, 98], [98]], 2)):
            got = await post(server, prompt=prompt, seed=1, max_tokens=4)
            assert [c["text"] for c in got["choices"]] == [text] * count
            assert [c["index"] for c in got["choices"]] == list(range(count))

    run(body)


@pytest.mark.parametrize(
    "prompt", [None, 5, {}, [], [[]], [""], "", [1, "a"], [[1], [True]], [1.5]]
)
def test_bad_prompts(prompt: object) -> None:
    async def body(server: FakeServer) -> None:
        assert "prompt" in await refuse(server, 400, "prompt", prompt=prompt)

    run(body)


def test_streamed_text_and_usage_equal_the_unstreamed() -> None:
    async def body(server: FakeServer) -> None:
        payload = {
            "prompt": ["ab", "xyz"],
            "n": 3,
            "seed": 5,
            "max_tokens": 20,
            "stop": ["m", "qz"],
        }
        whole = await post(server, **payload)
        chunks = await stream(server, **payload, stream_options={"include_usage": True})
        texts, reasons = {}, {}
        for chunk in chunks[:-1]:
            (choice,) = chunk["choices"]
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            if choice["finish_reason"] is not None:
                assert choice["index"] not in reasons
                reasons[choice["index"]] = (choice["finish_reason"], choice["stop_reason"])
        for choice in whole["choices"]:
            assert texts[choice["index"]] == choice["text"]
            assert reasons[choice["index"]] == (choice["finish_reason"], choice["stop_reason"])
        assert ("stop", "m") in reasons.values()
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"] == whole["usage"]
        assert all("usage" not in chunk for chunk in chunks[:-1])

    run(body)


def test_continuous_usage() -> None:
    async def body(server: FakeServer) -> None:
        options = {"continuous_usage_stats": True}
        chunks = await stream(server, prompt="ab", max_tokens=4, stream_options=options)
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == [1, 2, 3, 4, 4]

    run(body)


def test_stop_string_kept_where_asked() -> None:
    async def body(server: FakeServer) -> None:
        text = continued("a", 2, 16)
        stop = text[5:7]
        end = text.index(stop)
        for include in (False, True):
            got = await post(
                server, prompt="a", seed=2, stop=stop, include_stop_str_in_output=include
            )
            choice = got["choices"][0]
            assert choice["text"] == text[: end + 2 * include]
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
            assert got["usage"]["completion_tokens"] == end + 2

    run(body)


def test_stop_token_ids() -> None:
    async def body(server: FakeServer) -> None:
        text = continued("a", 2, 16)
        end = text.index(text[4])
        got = await post(server, prompt="a", seed=2, stop_token_ids=[ord(text[4])])
        choice = got["choices"][0]
        assert choice["text"] == text[:end]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ord(text[4]))

    run(body)


def test_end_of_sequence_is_no_stop_reason_and_no_text() -> None:
    async def body(server: FakeServer) -> None:
        for skip in (True, False):
            choice = (await post(server, prompt="a", skip_special_tokens=skip))["choices"][0]
            assert choice["text"] == "bb"
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
        got = await post(server, prompt="a", ignore_eos=True, max_tokens=4)
        assert got["choices"][0]["text"] == "bbb"

    run(body, FakeOptions(next_token=lambda last, position, seed: 0 if position == 2 else 98))


def test_half_a_character_is_never_sent() -> None:
    snowman = "☃".encode()

    async def body(server: FakeServer) -> None:
        chunks = await stream(server, prompt="a", max_tokens=7)
        texts = [chunk["choices"][0]["text"] for chunk in chunks]
        assert texts == ["☃", "☃", "\ufffd"]

    run(body, FakeOptions(next_token=lambda last, position, seed: snowman[position % 3]))


def test_logprobs() -> None:
    async def body(server: FakeServer) -> None:
        text = continued("b", 1, 3)
        for streamed in (False, True):
            payload = {"prompt": "ab", "seed": 1, "max_tokens": 3, "logprobs": 2}
            if streamed:
                parts = [c["choices"][0]["logprobs"] for c in await stream(server, **payload)]
                got = {key: sum((part[key] for part in parts), []) for key in parts[0]}
            else:
                got = (await post(server, **payload))["choices"][0]["logprobs"]
            assert got["tokens"] == list(text)
            assert got["token_logprobs"] == [-0.5] * 3
            assert got["text_offset"] == [0, 1, 2]
            assert got["top_logprobs"][0] == {text[0]: -0.5, chr(ord(text[0]) + 1): -1.5}

    run(body)


def test_logprobs_of_chosen_tokens() -> None:
    async def body(server: FakeServer) -> None:
        payload = {"prompt": "ab", "seed": 1, "max_tokens": 2, "logprob_token_ids": [88, 87]}
        text = continued("b", 1, 2)
        for logprobs in ({}, {"logprobs": 2}):
            got = (await post(server, **payload, **logprobs))["choices"][0]["logprobs"]
            assert got["top_logprobs"][0] == {text[0]: -0.5, "X": -97.0, "W": -96.0}
        parts = [c["choices"][0]["logprobs"] for c in await stream(server, **payload)]
        assert sum((part["top_logprobs"] for part in parts), []) == got["top_logprobs"]
        for logprobs in ({}, {"logprobs": 0}):
            got = (await post(server, **payload, **logprobs, echo=True))["choices"][0]["logprobs"]
            assert got["tokens"] == ["a", "b", *text]
            assert got["token_logprobs"] == [None, -0.5, -0.5, -0.5]
            assert got["text_offset"] == [0, 1, 2, 3] and len(got["top_logprobs"]) == 4

    run(body)


def test_chosen_tokens_are_as_few_as_the_likeliest() -> None:
    async def body(server: FakeServer) -> None:
        ids = list(range(21))
        await post(server, prompt="ab", max_tokens=1, logprob_token_ids=ids[1:])
        refused = await server.client.post(
            "/v1/completions", json={"prompt": "ab", "logprob_token_ids": ids}
        )
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "logprob_token_ids"

    run(body)


def test_an_output_that_repeats_itself_ends() -> None:
    async def body(server: FakeServer) -> None:
        repetition = {"max_pattern_size": 4, "min_count": 3}
        payload = {"prompt": "a", "max_tokens": 50, "repetition_detection": repetition}
        choice = (await post(server, **payload))["choices"][0]
        assert choice["text"] == "xyxyxy"
        assert choice["finish_reason"] == "repetition"
        assert choice["stop_reason"] == "repetition_detected"
        last = (await stream(server, **payload))[-1]["choices"][0]
        assert last["finish_reason"] == "repetition"
        choice = (await post(server, **payload | {"repetition_detection": {}}))["choices"][0]
        assert choice["finish_reason"] == "length"

    run(body, FakeOptions(next_token=lambda last, position, seed: 120 + position % 2))


def test_echo_with_logprobs() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, prompt="abc", echo=True, logprobs=1, max_tokens=2, seed=1)
        choice = got["choices"][0]
        assert choice["text"] == "abc" + continued("c", 1, 2)
        assert choice["logprobs"]["tokens"] == list(choice["text"])
        assert choice["logprobs"]["token_logprobs"] == [None] + [-0.5] * 4
        assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]
        assert choice["prompt_logprobs"] is None

    run(body)


def test_echo_alone_scores_the_prompt() -> None:
    async def body(server: FakeServer) -> None:
        for prompt in ("abc", [97, 98, 99]):
            got = await post(server, prompt=prompt, echo=True, max_tokens=0)
            assert got["choices"][0]["text"] == "abc"
            assert got["choices"][0]["logprobs"] is None
            assert got["usage"]["completion_tokens"] == 0
        got = await post(server, prompt="abc", echo=True, max_tokens=0, logprobs=0)
        assert got["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.5, -0.5]
        chunks = await stream(server, prompt="abc", echo=True, max_tokens=0)
        assert "".join(c["choices"][0]["text"] for c in chunks) == "abc"
        await refuse(server, 400, "max_tokens", prompt="abc", max_tokens=0)

    run(body)


def test_prompt_logprobs() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, prompt="ab", prompt_logprobs=2, max_tokens=1)
        first, second = got["choices"][0]["prompt_logprobs"]
        assert first is None
        assert second["98"] == {"logprob": -0.5, "rank": 1, "decoded_token": "b"}
        assert second["99"] == {"logprob": -1.5, "rank": 2, "decoded_token": "c"}
        await refuse(server, 400, "prompt_logprobs", prompt="a", prompt_logprobs=1, stream=True)

    run(body)


def test_token_ids() -> None:
    async def body(server: FakeServer) -> None:
        payload = {"prompt": "ab", "max_tokens": 2, "seed": 1, "return_token_ids": True}
        choice = (await post(server, **payload, return_tokens_as_token_ids=True, logprobs=0))[
            "choices"
        ][0]
        ids = [ord(c) for c in continued("b", 1, 2)]
        assert (choice["token_ids"], choice["prompt_token_ids"]) == (ids, [97, 98])
        assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in ids]
        chunks = await stream(server, **payload)
        streamed = [chunk["choices"][0] for chunk in chunks]
        assert sum((c["token_ids"] for c in streamed), []) == ids
        assert streamed[0]["prompt_token_ids"] == [97, 98]
        assert all("prompt_token_ids" not in c for c in streamed[1:])

    run(body)


def test_truncation_keeps_the_end() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, prompt="abcdef", truncate_prompt_tokens=2, echo=True, max_tokens=1)
        assert got["usage"]["prompt_tokens"] == 2
        got = await post(server, prompt="x" * 1000, truncate_prompt_tokens=-1, max_tokens=6)
        assert got["usage"]["prompt_tokens"] == 250

    run(body)


def test_context_length() -> None:
    async def body(server: FakeServer) -> None:
        message = await refuse(server, 400, "prompt", prompt="x" * 300)
        assert "256" in message and "300" in message
        message = await refuse(server, 400, "max_tokens", prompt="x" * 100, max_tokens=157)
        assert "256 - 100 = 156" in message
        got = await post(server, prompt="x" * 250)
        assert got["usage"]["completion_tokens"] == 6

    run(body)


def test_greedy_choices_are_all_the_same_and_refused() -> None:
    async def body(server: FakeServer) -> None:
        await refuse(server, 400, "n", prompt="a", n=2, temperature=0)
        await post(server, prompt="a", n=1, temperature=0)

    run(body)


def test_a_request_that_can_never_be_held_is_not_worth_retrying() -> None:
    async def body(server: FakeServer) -> None:
        assert "1024" in await refuse(server, 400, "n", prompt=["a"] * 100, n=100)

    run(body)


def test_a_full_queue() -> None:
    async def body(server: FakeServer) -> None:
        server.engine.paused = True
        waiting = asyncio.create_task(
            server.client.post("/v1/completions", json={"prompt": ["a"] * 3})
        )
        while server.engine.stats().num_submitted < 3:
            await asyncio.sleep(0.001)
        response = await server.client.post("/v1/completions", json={"prompt": ["a"] * 3})
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["type"] == "RateLimitError"
        server.engine.paused = False
        assert (await waiting).status_code == 200

    run(body, FakeOptions(max_running=2, max_waiting=2))


def test_a_full_queue_says_when_to_retry() -> None:
    async def body(server: FakeServer) -> None:
        server.engine.paused = True
        response = await server.client.post("/v1/completions", json={"prompt": ["a"] * 3})
        assert response.status_code == 429
        assert response.headers["retry-after"] == "17"

    run(body, FakeOptions(max_running=1, max_waiting=1, retry_after_s=17))


def test_priority_and_salt_reach_the_engine() -> None:
    async def body(server: FakeServer) -> None:
        request = {"prompt": "a", "max_tokens": 1, "priority": -3, "cache_salt": "s"}
        headers = {"X-Tenant-Id": "team/blue"}  # which only --trust-tenant-header reads
        response = await server.client.post("/v1/completions", json=request, headers=headers)
        assert response.status_code == 200
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        response = await server.client.post("/v1/chat/completions", json=chat)
        assert response.status_code == 200
        requests = [state.request for state in server.engine.submitted]
        assert [(r.priority, r.cache_salt) for r in requests] == [(-3, "s"), (0, "")]

    run(body, FakeOptions(uses_priority=True))


def test_kv_transfer_params_reach_the_engine_and_come_back() -> None:
    async def body(server: FakeServer) -> None:
        sends = {"do_remote_decode": True, "remote_port": 7, "remote_host": None}
        more = {"max_tokens": 2, "n": 2, "temperature": 1, "kv_transfer_params": sends}
        loads = {"do_remote_prefill": "true", "remote_engine_id": "fake"}
        response = await server.client.post("/v1/completions", json={"prompt": "a", **more})
        assert response.json()["kv_transfer_params"] == loads
        read = {"do_remote_decode": "true", "remote_port": "7"}
        sent = [state.request.kv_transfer_params for state in server.engine.submitted]
        assert sent == [read] * 2
        chunks = await stream(server, prompt="a", **more)
        assert chunks[-1]["kv_transfer_params"] == loads
        chat = {"messages": [{"role": "user", "content": "a"}], **more}
        response = await server.client.post("/v1/chat/completions", json=chat)
        assert response.json()["kv_transfer_params"] == loads
        response = await server.client.post("/v1/chat/completions", json=chat | {"stream": True})
        assert f'"kv_transfer_params":{msgspec.json.encode(loads).decode()}' in response.text
        response = await server.client.post("/v1/completions", json={"prompt": "a"})
        assert "kv_transfer_params" not in response.json()

    run(body)


@pytest.mark.parametrize("step_s", [0.0, 0.01], ids=["merged", "apart"])
def test_a_request_that_fails_while_it_runs(step_s: float) -> None:
    """What was generated before is delivered, also if the failure comes in the same output."""

    async def body(server: FakeServer) -> None:
        response = await server.client.post("/v1/completions", json={"prompt": "a"})
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "InternalServerError"
        chunks = await stream(server, prompt="a", seed=5)
        assert chunks[-1]["error"]["code"] == 500
        text = "".join(c["choices"][0]["text"] for c in chunks[:-1])
        assert text == continued("a", seed=5, count=3)
        assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])

    run(body, FakeOptions(fail_at_position=3, step_s=step_s))


def test_a_choice_that_was_complete_before_its_failure() -> None:
    async def body(server: FakeServer) -> None:
        stop = continued("a", seed=5, count=2)[-1]
        got = await post(server, prompt="a", seed=5, stop=stop)
        assert got["choices"][0]["finish_reason"] == "stop"

    run(body, FakeOptions(fail_at_position=3, step_s=0.0))


def test_unknown_model() -> None:
    async def body(server: FakeServer) -> None:
        message = await refuse(server, 404, "model", model="gpt", prompt="a")
        assert message == "The model `gpt` does not exist; this server has `fake`, `alias`."

    run(body)
