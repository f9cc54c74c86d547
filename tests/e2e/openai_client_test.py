"""The `openai` client against the live server with the real default model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

CAPITAL = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]

IGNORE_EOS = {"ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ["--enable-mfu-metrics"]
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), options) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME


def test_chat(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(
        model=NAME, messages=CAPITAL, temperature=0, max_completion_tokens=30
    )
    choice = got.choices[0]
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert got.usage is not None and got.usage.total_tokens == (
        got.usage.prompt_tokens + got.usage.completion_tokens
    )


def test_work_is_estimated(server: ServerProcess, client: openai.OpenAI) -> None:
    def counts() -> tuple[float, float, float]:
        names = ("estimated_flops_total", "estimated_read_bytes_total", "engine_steps_total")
        flops, read, steps = (server.metric(name) for name in names)
        return flops, read, steps

    before = counts()
    prompt: Any = list(range(1000, 1100))
    client.completions.create(model=NAME, prompt=prompt, max_tokens=8, extra_body=IGNORE_EOS)
    flops, read, steps = (now - then for now, then in zip(counts(), before, strict=True))
    # 106 million weights in the layers, for 107 or 108 tokens, and 28 for each row of logits.
    assert flops == pytest.approx(2 * (106.2e6 * 108 + 28.3e6 * 8), rel=0.02)
    assert steps >= 8
    assert 80e6 < read / steps < 110e6  # mostly blocks of 5 bits a weight


def test_chat_stream_equals_the_whole(client: openai.OpenAI) -> None:
    request = {"model": NAME, "messages": CAPITAL, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**request)
    stream = client.chat.completions.create(
        **request, stream=True, stream_options={"include_usage": True}
    )
    text, roles, reasons, usage = "", [], [], None
    for chunk in stream:
        if chunk.usage is not None:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            roles += [choice.delta.role] if choice.delta.role else []
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert text == whole.choices[0].message.content
    assert (roles, reasons) == (["assistant"], [whole.choices[0].finish_reason])
    assert usage is not None and whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_completion_and_prefix_cache(client: openai.OpenAI) -> None:
    prompt = "One two three four five six seven eight nine ten. " * 8
    first, second = (
        client.completions.create(model=NAME, prompt=prompt, temperature=0, max_tokens=12)
        for _ in range(2)
    )
    assert first.choices[0].text == second.choices[0].text
    assert second.usage is not None and second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= 64


def test_completion_stream(client: openai.OpenAI) -> None:
    request = {"model": NAME, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 20}
    whole = client.completions.create(**request).choices[0].text
    assert "".join(
        c.choices[0].text for c in client.completions.create(**request, stream=True)
    ) == (whole)


def test_one_event_per_token(server: ServerProcess, client: openai.OpenAI) -> None:
    latencies = "inter_token_latency_seconds_count"
    before = server.metric(latencies)
    for interval, want in ((1, [1] * 60), (8, [1, *[8] * 7, 3])):
        stream = client.completions.create(
            model=NAME,
            prompt="Once upon a time",
            max_tokens=60,
            stream=True,
            extra_body={"return_token_ids": True, "ignore_eos": True, "stream_interval": interval},
        )
        assert [len(chunk.choices[0].model_extra["token_ids"]) for chunk in stream] == want
    assert server.metric(latencies) == before + 2 * 59


TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]


def test_agent_loop(client: openai.OpenAI) -> None:
    """Histories as agents send them: turns without content, results of tools, refusals."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    history: list[Any] = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": [{"type": "text", "text": "How is the weather in Paris?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees and sunny"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees and sunny"},
    ]
    request: dict[str, Any] = {"model": NAME, "tools": TOOLS, "tool_choice": "none"}
    for question in ("Is it warm there?", "Thank you."):
        got = client.chat.completions.create(**request, messages=history, max_tokens=8)
        assert got.choices[0].message.content is not None
        history += [got.choices[0].message, {"role": "user", "content": question}]
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    stream = client.chat.completions.create(
        **request, messages=[*history, refusal, history[1]], max_tokens=8, stream=True
    )
    assert sum(len(chunk.choices) for chunk in stream) > 1


def test_token_id_prompts_and_lists(client: openai.OpenAI) -> None:
    request = {"model": NAME, "temperature": 0, "max_tokens": 6}
    echoed = client.completions.create(
        **request, prompt="The sky is", extra_body={"return_token_ids": True}
    )
    ids = echoed.choices[0].model_extra["prompt_token_ids"]
    got = client.completions.create(**request, prompt=[ids, ids])
    assert [c.text for c in got.choices] == [echoed.choices[0].text] * 2


def test_n_and_seed(client: openai.OpenAI) -> None:
    sampling = {"n": 4, "seed": 11, "max_tokens": 12, "temperature": 1.0}
    request = {"model": NAME, "prompt": "My name is", **sampling}
    first, again = (client.completions.create(**request) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in again.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert len(set(texts)) > 1
    # A child's seed is the request's plus its index.
    third = client.completions.create(**{**request, "n": 1, "seed": 13})
    assert third.choices[0].text == texts[2]


def test_stop(client: openai.OpenAI) -> None:
    request = {"model": NAME, "prompt": "1, 2, 3, 4, 5,", "temperature": 0, "max_tokens": 30}
    whole = client.completions.create(**request).choices[0].text
    stop = whole[4:7]
    for stream in (False, True):
        got = client.completions.create(**request, stop=[stop], stream=stream)
        choices = [chunk.choices[0] for chunk in got] if stream else got.choices
        assert "".join(c.text for c in choices) == whole[: whole.index(stop)]
        assert choices[-1].finish_reason == "stop"
        assert choices[-1].model_extra["stop_reason"] == stop


def test_logprobs(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(
        model=NAME, messages=CAPITAL, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3
    )
    logprobs = got.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    for entry in logprobs.content:
        tops = [top.logprob for top in entry.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True)
        assert entry.logprob == tops[0] <= 0  # greedy: the most likely token was taken
    text = b"".join(bytes(entry.bytes or []) for entry in logprobs.content).decode()
    assert text.startswith(got.choices[0].message.content or "no text")


def test_echo_scores_the_prompt_as_generation_does(client: openai.OpenAI) -> None:
    request = {"model": NAME, "temperature": 0, "logprobs": 1}
    made = client.completions.create(**request, prompt="The sun rises in the", max_tokens=8)
    text = "The sun rises in the" + made.choices[0].text
    scored = client.completions.create(**request, prompt=text, max_tokens=0, echo=True).choices[0]
    assert scored.text == text
    assert scored.logprobs is not None and made.choices[0].logprobs is not None
    generated = made.choices[0].logprobs.token_logprobs or []
    prompt_scores = scored.logprobs.token_logprobs or []
    assert prompt_scores[0] is None
    assert scored.logprobs.text_offset == [
        sum(map(len, (scored.logprobs.tokens or [])[:i])) for i in range(len(prompt_scores))
    ]
    # The same text tokenizes the same here; a prefill and a decode may round differently.
    assert prompt_scores[-len(generated) :] == pytest.approx(generated, abs=0.05)


def test_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="gpt-4", prompt="x")
    with pytest.raises(openai.BadRequestError, match="8192"):
        client.completions.create(model=NAME, prompt=[1] * 9000)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=NAME, prompt="x", temperature=-1)
    with pytest.raises(openai.BadRequestError, match="token id 49152"):
        client.completions.create(model=NAME, prompt=[49152])
    with pytest.raises(openai.BadRequestError, match="does not fill in the middle"):
        client.completions.create(model=NAME, prompt="x", suffix="y")
    with pytest.raises(openai.NotFoundError, match="generates text"):
        client.embeddings.create(model=NAME, input="x")
    for field, value in (
        ("min_tokens", 17),  # more than max_tokens, 16
        ("logit_bias", {"49152": 1}),
        ("stop_token_ids", [49152]),
        ("priority", 1),
    ):
        with pytest.raises(openai.BadRequestError) as refusal:
            client.completions.create(model=NAME, prompt="x", extra_body={field: value})
        assert refusal.value.param == field


def test_nothing_is_left_behind(server: ServerProcess) -> None:
    server.wait_until_idle()
    assert server.metric("num_requests_running") == 0
