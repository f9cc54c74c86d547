"""`POST /v1/systemone`: questions that are answered by the probabilities of their labels."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from pagemill.engine.async_engine import AsyncEngine
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server import structured_decisions
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.media import Media, NoMedia
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.server.testing.fake_speech import FakeMedia

YES, NO = 1, 2
CHOICE = {"type": "choice", "criteria": {"refund": "wants money back", "other": None}}
NOUL = {"type": "noul", "instructions": "Is it urgent?", "criteria": {"true": "today"}}
SCORE = {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]}
BODY: dict[str, Any] = {"state": "a letter", "questions": {"q": CHOICE}}


class Words(FakeRenderer):
    """Has tokens for yes and no."""

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """The bytes of `text`, unless it is such a word."""
        return {"yes": [YES], "no": [NO]}.get(text) or super().encode(text)


def run(
    test: Callable[[FakeServer], Awaitable[None]],
    options: FakeOptions | None = None,
    media: Media | None = None,
    renderer: FakeRenderer | None = None,
) -> None:
    async def body() -> None:
        renders = renderer or Words()
        async with fake_server(
            options, media=media, renderer=renders, max_model_len=2000
        ) as server:
            async with asyncio.timeout(60):
                await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def post(server: FakeServer, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post("/v1/systemone", json={**BODY, **fields})
    assert response.status_code == status, response.text
    return response.json()


def probabilities(*tokens: int) -> list[float]:
    """Of what the fake model says of `tokens`, among them."""
    weights = [math.exp(tokens[0] - token) for token in tokens]
    return [weight / sum(weights) for weight in weights]


def test_answers() -> None:
    async def body(server: FakeServer) -> None:
        questions = {"what": CHOICE, "urgent": NOUL, "angry": SCORE}
        found = await post(server, questions=questions, instructions="Sort mail.")
        assert found["object"] == "structured_decision" and found["model"] == "fake"
        answers, diagnostics = found["answers"], found["diagnostics"]
        assert list(answers) == list(diagnostics) == list(questions)
        refund, other = probabilities(ord("A"), ord("B"))
        what = answers["what"]
        assert (what["type"], what["choice"]) == ("choice", "refund")
        assert what["probabilities"] == pytest.approx({"refund": refund, "other": other})
        urgent = answers["urgent"]
        assert (urgent["type"], urgent["noul"]) == ("noul", pytest.approx(refund))
        assert urgent["probabilities"] == pytest.approx({"true": refund, "false": other})
        mass = math.exp(-9.0 - YES) + math.exp(-9.0 - NO)
        assert diagnostics["urgent"] == {
            "label_mass": pytest.approx(mass),
            "argmax_is_label": False,
        }
        assert urgent["confidence"] == pytest.approx(math.exp(-9.0 - YES))
        angry = answers["angry"]
        levels = probabilities(*b"012")
        assert angry["legend"] == {"0": "calm", "1": "cross", "2": "furious"}
        assert angry["probabilities"] == pytest.approx(dict(zip("012", levels, strict=True)))
        assert angry["score"] == pytest.approx(levels[1] + 2 * levels[2])
        usage = found["usage"]
        assert usage["output_tokens"] == len(server.engine.submitted) == 3
        assert usage["input_tokens"] == sum(len(each.prompt) for each in server.engine.submitted)

    run(body)


def test_what_the_model_reads() -> None:
    async def body(server: FakeServer) -> None:
        await post(
            server,
            questions={"what": CHOICE, "urgent": NOUL, "angry": SCORE},
            instructions="Sort mail.",
            state={"from": "me", "count": 2},
            chat_template_kwargs={"thinking": True, "tone": "dry"},
        )
        rendered = server.renderer.rendered
        texts = [each.messages[0]["content"] for each in rendered]
        asks = (
            "Read the state below, and answer the question behind it by one label and nothing else."
        )
        shared = f'{asks}\n\nSort mail.\n\nState:\n{{"from":"me","count":2}}\n\n'
        assert [text.removeprefix(shared) for text in texts] == [
            "A. refund: wants money back\nB. other\nAnswer with the letter of one of these.",
            "Is it urgent?\nyes: today\nAnswer with yes or no.",
            "How angry?\n0. calm\n1. cross\n2. furious\n"
            "Answer with the number of one of these, from the lowest to the highest.",
        ]
        variables = {"enable_thinking": False, "thinking": True, "tone": "dry"}
        assert all(each.template_kwargs == variables for each in rendered)

    run(body)


def test_the_likeliest_token() -> None:
    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        defaults = structs.replace(pipeline.model.defaults, temperature=2.0, repetition_penalty=3.0)
        pipeline.model = replace(pipeline.model, defaults=defaults)
        found = await post(server)
        assert found["diagnostics"]["q"]["argmax_is_label"] is True
        sampling = server.engine.submitted[0].request.sampling
        assert sampling is not None
        assert sampling.temperature == 0 and vars(sampling)["repetition_penalty"] == 1

    run(body, FakeOptions(next_token=lambda previous, position, seed: ord("B")))


def test_media_are_read_once_and_travel_with_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    submit = AsyncEngine.submit

    async def noted(self: AsyncEngine, prompts: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(prompts))
        return await submit(self, prompts, *arguments, **options)

    monkeypatch.setattr(AsyncEngine, "submit", noted)
    media = FakeMedia()

    async def body(server: FakeServer) -> None:
        questions = {"a": CHOICE, "b": SCORE}
        found = await post(
            server,
            questions=questions,
            images=["fake:i"],
            videos=[{"url": "fake:v"}],
            audio=["fake:s"],
        )
        assert set(found["answers"]) == set(questions)
        assert media.read_urls == ["fake:i", "fake:s", "fake:v"]
        assert sizes == [1, 1]
        await post(server, questions=questions)
        assert sizes == [1, 1, 2]
        parts = server.renderer.rendered[0].messages[0]["content"]
        assert [part["type"] for part in parts] == ["image", "audio", "video", "text"]

    run(body, media=media)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(server: FakeServer) -> None:
        many = {f"q{i}": CHOICE for i in range(65)}
        options = {f"o{i}": None for i in range(27)}
        for fields, param in (
            ({"state": None}, "state"),
            ({"questions": {}}, "questions"),
            ({"questions": many}, "questions"),
            ({"questions": {"": CHOICE}}, "questions"),
            ({"questions": {"q": {"type": "essay"}}}, "questions"),
            ({"questions": {"q": {"type": "noul"}}}, "questions"),
            ({"questions": {"q": {**CHOICE, "criteria": options}}}, "questions"),
            ({"questions": {"q": {**SCORE, "criteria": ["one"]}}}, "questions"),
            ({"questions": {"q": {**SCORE, "criteria": ["a"] * 11}}}, "questions"),
            ({"state": "a" * 3000}, "state"),
            ({"images": ["fake:i"]}, "images"),
            ({"videos": [{"file": "a"}]}, "videos"),
            ({"chat_template_kwargs": {"chat_template": "a"}}, "chat_template_kwargs"),
        ):
            error = (await post(server, 400, **fields))["error"]
            assert (error["param"] or "").partition(".")[0].partition("[")[0] == param, error
            assert "messages" not in error["message"], error
            assert "_url" not in error["message"], error
        assert not server.engine.submitted
        monkeypatch.setattr(structured_decisions, "MAX_SHARED_BYTES", 200)
        await post(server)
        refused = await post(server, 400, questions={"a": CHOICE, "b": CHOICE})
        assert "send fewer questions" in refused["error"]["message"]

    run(body, media=NoMedia())


def test_labels_that_are_several_tokens() -> None:
    async def body(server: FakeServer) -> None:
        refused = await post(server, 400, questions={"q": NOUL})
        assert "no token of its own for the label 'yes'" in refused["error"]["message"]
        await post(server)

    run(body, renderer=FakeRenderer())
