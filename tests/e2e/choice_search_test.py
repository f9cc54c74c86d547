"""`best_of` and beam search over HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ["--max-model-len=512", "--max-num-seqs=8"]
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), options) as running:
        yield running


def post(server: ServerProcess, path: str, status: int, body: dict[str, Any]) -> Any:
    response = httpx.post(f"{server.base_url}{path}", json=body, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


def complete(server: ServerProcess, status: int = 200, **fields: Any) -> Any:
    body = {"prompt": "The capital of France", "max_tokens": 8, "logprobs": 0, **fields}
    return post(server, "/v1/completions", status, body)


def mean(choice: Any) -> float:
    logprobs = choice["logprobs"]["token_logprobs"]
    return sum(logprobs) / len(logprobs)


def test_best_of_gives_the_most_likely_choices(server: ServerProcess) -> None:
    fields: dict[str, Any] = {"temperature": 1, "seed": 7}
    every = complete(server, **fields, n=5)
    best = complete(server, **fields, n=2, best_of=5)
    expected = sorted(every["choices"], key=mean, reverse=True)[:2]
    assert [c["text"] for c in best["choices"]] == [c["text"] for c in expected]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert best["usage"] == every["usage"]
    plain = complete(server, **fields, n=1, best_of=5, logprobs=None)["choices"][0]
    assert plain["text"] == expected[0]["text"] and plain["logprobs"] is None


def test_beams_are_more_likely_than_greedy_outputs(server: ServerProcess) -> None:
    fields: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    prompts = ["The capital of France", "Once upon a time"]
    greedy = complete(server, **fields, prompt=prompts)["choices"]
    found = complete(server, **fields, prompt=prompts, use_beam_search=True, n=4)
    assert len(found["choices"]) == 8 and found["usage"]["completion_tokens"] == 8 * 8
    for prompt, alone in enumerate(greedy):
        beams = found["choices"][4 * prompt : 4 * prompt + 4]
        scores = [mean(beam) for beam in beams]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] >= mean(alone) - 1e-3  # the same tokens, computed in another batch
        assert len({beam["text"] for beam in beams}) == 4
        assert all(beam["finish_reason"] == "length" for beam in beams)
    one = complete(server, **fields, use_beam_search=True, n=1)["choices"][0]
    assert one["text"] == greedy[0]["text"]
    assert math.isclose(mean(one), mean(greedy[0]), abs_tol=1e-3)


def test_beams_in_a_chat(server: ServerProcess) -> None:
    chat = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 12,
        "use_beam_search": True,
        "n": 2,
    }
    choices = post(server, "/v1/chat/completions", 200, chat)["choices"]
    assert len({choice["message"]["content"] for choice in choices}) == 2


def test_beams_follow_a_grammar(server: ServerProcess) -> None:
    cities = [" Paris", " Lyon", " Nice"]
    prompt = "The capital of France is"
    fields: dict[str, Any] = {"guided_choice": cities, "use_beam_search": True, "n": 3}
    found = complete(server, prompt=prompt, **fields)["choices"]
    texts = [choice["text"] for choice in found]  # one may be spelled by other tokens, too
    assert texts[0] == " Paris" and {" Paris"} < set(texts) <= set(cities)
    assert all(choice["finish_reason"] == "stop" for choice in found)
    scores = [mean(choice) for choice in found]
    assert scores == sorted(scores, reverse=True)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    beams = complete(server, use_beam_search=True, n=2, response_format=shape, max_tokens=24)
    values = [json.loads(c["text"]) for c in beams["choices"] if c["finish_reason"] == "stop"]
    assert values and all(isinstance(value["a"], int) for value in values)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 1, "n": 2, "temperature": 1}, "best_of"),
        ({"best_of": 2, "stream": True, "temperature": 1}, "best_of"),
        ({"best_of": 10**6, "temperature": 1}, "n"),
        ({"best_of": 2, "temperature": 0}, "n"),
        ({"use_beam_search": True, "best_of": 2}, "best_of"),
        ({"use_beam_search": True, "n": 11}, "n"),
        ({"use_beam_search": True, "bad_words": ["a"]}, "bad_words"),
        ({"use_beam_search": True, "length_penalty": 99}, "length_penalty"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    server: ServerProcess, fields: dict[str, Any], param: str
) -> None:
    assert complete(server, 400, **fields)["error"]["param"] == param
