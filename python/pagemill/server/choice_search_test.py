"""What `best_of` compares, if the server reports other values than log probabilities; how long
beams may be, and how they are streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pagemill.engine.async_engine import Prompt
from pagemill.engine.outputs import EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.choice_search import Beams, MostLikely, check_search, find_choices
from pagemill.server.errors import ApiError
from pagemill.server.testing.fake_server import FakeServer, fake_server


class SubmittedError(Exception):
    """Ends `find_choices` with what it submitted."""


async def submit(prompts: Sequence[Prompt], sampling: SamplingParams) -> RequestStream:
    raise SubmittedError(sampling.n, sampling.logprobs, sampling.logprobs_mode)


@pytest.mark.parametrize(
    ("logprobs", "mode", "submitted"),
    [
        (None, "raw_logits", (5, 0, "raw_logprobs")),
        (None, "processed_logprobs", (5, 0, "raw_logprobs")),
        (2, "processed_logprobs", (5, 2, "processed_logprobs")),
    ],
)
def test_best_of_compares_log_probabilities(
    logprobs: int | None, mode: str, submitted: tuple[int, int, str]
) -> None:
    sampling = SamplingParams(n=2, logprobs=logprobs, logprobs_mode=mode)
    check_search(MostLikely(5), sampling, 20)
    with pytest.raises(SubmittedError) as raised:
        asyncio.run(find_choices(MostLikely(5), submit, (), sampling, (), constrained=False))
    assert raised.value.args == submitted


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logits"])
def test_best_of_with_reported_logits_is_refused(mode: str) -> None:
    with pytest.raises(ApiError) as raised:
        check_search(MostLikely(5), SamplingParams(logprobs=0, logprobs_mode=mode), 20)
    assert (raised.value.status, raised.value.param) == (400, "best_of")
    assert "--logprobs-mode" in raised.value.message


def test_beams_with_a_grammar_have_a_limit() -> None:
    prompts = [Prompt(RenderedPrompt(np.array([1], np.int32)), most) for most in (10, 1024)]

    async def full(prompts: Sequence[Prompt], sampling: SamplingParams) -> RequestStream:
        raise EngineError("RESOURCE_EXHAUSTED", "full")

    def search(width: int, *, constrained: bool) -> None:
        beams = Beams(length_penalty=1.0, ignores_eos=False)
        found = find_choices(
            *(beams, full, prompts, SamplingParams(n=width), ()),
            constrained=constrained,
            max_tokens_param="max_completion_tokens",
        )
        asyncio.run(found)

    for width, constrained in ((8, True), (9, False)):
        with pytest.raises(EngineError, match="full"):
            search(width, constrained=constrained)
    with pytest.raises(ApiError, match="`max_completion_tokens` may be 910 here") as raised:
        search(9, constrained=True)
    assert (raised.value.status, raised.value.param) == (400, "max_completion_tokens")


async def answered(server: FakeServer, path: str, body: dict[str, Any]) -> list[Any]:
    """The choices of a response."""
    response = await server.client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"]


async def streamed(server: FakeServer, path: str, body: dict[str, Any]) -> list[Any]:
    """The choices of all events."""
    response = await server.client.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    *events, done, end = response.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [each for event in events for each in json.loads(event[len("data: ") :])["choices"]]


def test_streams_have_the_outputs_of_beams() -> None:
    fields: dict[str, Any] = {"use_beam_search": True, "n": 3, "max_tokens": 4, "seed": 1}
    messages = [{"role": "user", "content": "Hi"}]

    async def main() -> None:
        async with fake_server() as server:
            chat = "/v1/chat/completions", {"messages": messages, **fields}
            whole = [each["message"]["content"] for each in await answered(server, *chat)]
            texts = [""] * 3
            for each in await streamed(server, *chat):
                texts[each["index"]] += each["delta"]["content"]
            assert texts == whole and len(set(texts)) == 3
            completion = "/v1/completions", {"prompt": "Hi", **fields}
            whole = [each["text"] for each in await answered(server, *completion)]
            texts, reasons = [""] * 3, [""] * 3
            for each in await streamed(server, *completion):
                texts[each["index"]] += each["text"]
                reasons[each["index"]] += each["finish_reason"] or ""
            assert texts == whole and reasons == ["length"] * 3

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_beams_are_refused_before_a_stream_begins(stream: bool) -> None:
    beams: dict[str, Any] = {"use_beam_search": True, "n": 9, "max_tokens": 4, "stream": stream}

    async def refused(server: FakeServer, **fields: Any) -> str:
        body = {"messages": [{"role": "user", "content": "Hi"}], **beams, **fields}
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400, response.text
        return response.json()["error"]["param"]

    async def main() -> None:
        async with fake_server(max_model_len=2048) as server:
            assert await refused(server, vllm_xargs={"no_such": 1}) == "vllm_xargs"
            longest = {"max_tokens": None, "max_completion_tokens": 1999}
            assert await refused(server, vllm_xargs={"no_such": 1}, **longest) == [*longest][1]

    asyncio.run(main())
