"""`/v1/chat/completions/batch`: many conversations, one response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server import chat
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.errors import bad_request
from pagemill.server.protocol.media import SentMedia
from pagemill.server.protocol.structured import wanted_output
from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server

ROUTE = "/v1/chat/completions/batch"


class BeginsInReasoning(FakeRenderer):
    """An answer begins within reasoning if the prompt ends with "x"."""

    def decode(self, token_ids: Any, skip_special_tokens: bool = True) -> str:
        text = super().decode(token_ids, skip_special_tokens)
        return text + "<think>" if text.endswith("x") else text


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def run(test: Callable[[FakeServer], Awaitable[None]], **options: Any) -> None:
    async def body() -> None:
        async with fake_server(**options) as server:
            await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def post(server: FakeServer, status: int = 200, route: str = ROUTE, **body: Any) -> Any:
    response = await server.client.post(route, json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_each_conversation_has_a_choice() -> None:
    async def body(server: FakeServer) -> None:
        fields = {"max_tokens": 4, "seed": 1, "logprobs": True, "return_token_ids": True}
        texts = ["Hi", "How are you?", "Hi"]
        got = await post(server, messages=[user(text) for text in texts], **fields)
        assert got["object"] == "chat.completion" and "prompt_token_ids" not in got
        assert [choice["index"] for choice in got["choices"]] == [0, 1, 2]
        prompt_tokens = 0
        for text, choice in zip(texts, got["choices"], strict=True):
            alone = await post(server, route="/v1/chat/completions", messages=user(text), **fields)
            assert choice | {"index": 0} == alone["choices"][0]
            prompt_tokens += alone["usage"]["prompt_tokens"]
        assert got["usage"]["prompt_tokens"] == prompt_tokens
        assert got["usage"]["completion_tokens"] == 12

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": user("Hi")}, "messages"),
        ({"messages": [user("Hi"), []]}, "messages"),
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"echo": True}, "echo"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"max_tokens": 10_000}, "max_tokens"),
    ],
)
def test_refusals(fields: dict[str, Any], param: str) -> None:
    async def body(server: FakeServer) -> None:
        refused = await post(server, 400, **{"messages": [user("Hi")], **fields})
        assert refused["error"]["param"] == param
        assert not server.engine.submitted

    run(body)


def test_a_bad_conversation_is_named_and_nothing_runs() -> None:
    async def body(server: FakeServer) -> None:
        bad = [{"role": "user", "content": 5}]
        refused = await post(server, 400, messages=[user("Hi"), bad])
        assert refused["error"]["message"].startswith("Conversation 1: `messages[0].content`")
        assert not server.engine.submitted
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        pipeline.model = replace(pipeline.model, max_choices=2)
        refused = await post(server, 400, messages=[user("Hi")] * 3)
        assert refused["error"]["param"] == "messages"

    run(body)


def test_answers_that_begin_differently_are_not_constrained_together() -> None:
    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        assert pipeline.renderer.formats.has_reasoning
        messages = [user("Hi"), [*user("Hi"), {"role": "system", "content": "x"}]]
        schema = {"type": "json_object"}
        refused = await post(
            server, 400, messages=messages, response_format=schema, add_generation_prompt=False
        )
        assert "one by one" in refused["error"]["message"]

    run(body, renderer=BeginsInReasoning(MARKED))


def test_images_are_limited_by_request() -> None:
    class Images:
        """Each image is as wide as its URL says; two of a request are taken."""

        kinds = ("image",)

        async def read(
            self, sent: Sequence[SentMedia], owner: MediaOwner, budget: object = None
        ) -> Sequence[Any]:
            if len(sent) > 2:
                raise bad_request(f"{[image.where for image in sent]}", "messages")
            return [image.url for image in sent]

        def reset_cache(self) -> None: ...

        async def place(
            self, prompt: RenderedPrompt, images: Sequence[Any], tenant: str, budget: object
        ) -> RenderedPrompt:
            return RenderedPrompt.of([*prompt.token_ids.tolist(), *map(int, images)])

    def shown(*urls: str) -> list[dict[str, Any]]:
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return [{"role": "user", "content": [{"type": "text", "text": "x"}, *parts]}]

    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        pipeline.rendering.media = Images()
        await post(server, messages=[shown("1"), user("Hi"), shown("2")], max_tokens=1)
        ends = [int(state.prompt[-1]) for state in server.engine.submitted]
        assert (ends[0], ends[2]) == (1, 2) and ends[1] > 2
        refused = await post(server, 400, messages=[shown("1"), shown("2", "3")])
        assert "messages[1][0].content[2]" in refused["error"]["message"]
        assert len(server.engine.submitted) == 3

    run(body)


def test_what_conversations_share_is_read_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return wanted_output(*arguments)

    async def body(server: FakeServer) -> None:
        messages = [user("Hi")] * 3
        schema = {"type": "json_object"}
        await post(server, messages=messages, response_format=schema, max_tokens=1)
        assert len(asked) == 1
        monkeypatch.setattr(chat, "MAX_SHARED_BYTES", 90)
        kwargs = {"x": "y" * 20}
        await post(server, messages=messages, chat_template_kwargs=kwargs, max_tokens=1)
        kwargs = {"x": "y" * 25}
        refused = await post(server, 400, messages=messages, chat_template_kwargs=kwargs)
        assert "33 bytes" in refused["error"]["message"]

    monkeypatch.setattr(chat, "wanted_output", counted)
    run(body)


def test_tokens_are_forbidden_wherever_answers_begin() -> None:
    async def body(server: FakeServer) -> None:
        messages = [user("Hi"), [*user("Hi"), {"role": "system", "content": "x"}]]
        fields = {"max_tokens": 1, "add_generation_prompt": False, "allowed_token_ids": [65]}
        await post(server, messages=messages, **fields)
        await post(server, messages=messages, bad_words=["no"], max_tokens=1)
        refused = await post(
            server, 400, messages=messages, add_generation_prompt=False, thinking_token_budget=3
        )
        assert "one by one" in refused["error"]["message"]

    run(body, renderer=BeginsInReasoning(MARKED))


def test_invocations_take_what_has_several_generations() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, route="/invocations", messages=[user("a"), user("b")])
        assert [choice["index"] for choice in got["choices"]] == [0, 1]
        fields = {"query": "a", "items": ["b"], "label_token_ids": [5]}
        got = await post(server, route="/invocations", **fields)
        assert got["id"].startswith("generative-scoring-")

    run(body)
