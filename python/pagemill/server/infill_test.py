"""`suffix` of `/v1/completions` over the fake engine, whose tokens are bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.infill import Infill
from pagemill.server.rendering import MAX_PAIR_CHARS
from pagemill.server.testing.fake_renderer import FakeRenderer, FakeTokenizer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

_IDS = {"[SUFFIX]": 1, "[PREFIX]": 2}


class _InfillTokenizer(FakeTokenizer):
    """Bytes 1 and 2 are the tokens of a layout."""

    def token_id(self, content: str) -> int | None:
        return _IDS.get(content)


def _run(
    test: Callable[[FakeServer], Awaitable[None]], output: str = "middle", max_model_len: int = 256
) -> None:
    async def body() -> None:
        renderer = FakeRenderer()
        renderer.infill = Infill.of(_InfillTokenizer())
        options = FakeOptions(next_token=script(output))
        async with fake_server(options, renderer=renderer, max_model_len=max_model_len) as server:
            await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def _post(server: FakeServer, route: str = "", status: int = 200, **body: Any) -> Any:
    response = await server.client.post(f"/v1/completions{route}", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_each_prompt_is_filled_up_to_the_suffix() -> None:
    async def body(server: FakeServer) -> None:
        got = await _post(
            server, prompt=["ab", [97]], suffix="z", return_token_ids=True, max_tokens=9
        )
        assert [choice["text"] for choice in got["choices"]] == ["middle"] * 2
        prompts = [choice["prompt_token_ids"] for choice in got["choices"]]
        assert prompts == [[1, 122, 2, 97, 98], [1, 122, 2, 97]]

    _run(body)


def test_a_prompt_may_be_empty() -> None:
    async def body(server: FakeServer) -> None:
        got = await _post(server, prompt="", suffix="z")
        assert got["choices"][0]["text"] == "middle"

    _run(body)


def test_a_middle_ends_with_a_token_of_the_layout() -> None:
    async def body(server: FakeServer) -> None:
        choice = (await _post(server, prompt="a", suffix="z"))["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("mid", "stop")
        choice = (await _post(server, prompt="a"))["choices"][0]
        assert choice["text"] == "mid\x02dle"
        got = await _post(server, prompt="a", suffix="z", ignore_eos=True, max_tokens=7)
        assert got["choices"][0]["text"] == "mid\x02dle"

    _run(body, "mid\x02dle")


def test_rendered_requests_do_the_same() -> None:
    async def body(server: FakeServer) -> None:
        (request,) = await _post(server, "/render", prompt="a", suffix="z", max_tokens=5)
        assert request["token_ids"] == [1, 122, 2, 97]
        assert request["sampling_params"]["stop_token_ids"] == [1, 2]
        response = await server.client.post("/inference/v1/generate", json=request)
        assert response.json()["choices"][0]["token_ids"] == [*b"mid\x02"]

    _run(body, "mid\x02dle")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("echo", True),
        ("prompt_embeds", "AAAA"),
        ("truncate_prompt_tokens", 5),
        ("use_beam_search", True),
    ],
)
def test_fields_that_exclude_it(name: str, value: Any) -> None:
    async def body(server: FakeServer) -> None:
        for route in ("", "/render"):
            got = await _post(server, route, 400, prompt="a", suffix="z", **{name: value})
            assert got["error"]["param"] == name
            assert got["error"]["message"] == f"`{name}` and `suffix` exclude each other."

    _run(body)


def test_what_cannot_fit_is_refused() -> None:
    async def body(server: FakeServer) -> None:
        got = await _post(server, status=400, prompt="a", suffix="z" * 5000)
        assert got["error"]["param"] == "suffix"
        assert "at least 5000 tokens" in got["error"]["message"]
        got = await _post(server, status=400, prompt="a" * 150, suffix="z" * 150)
        assert got["error"]["param"] == "prompt"

    _run(body)


def test_copies_of_a_suffix_are_bounded() -> None:
    async def body(server: FakeServer) -> None:
        suffix = "z" * (MAX_PAIR_CHARS // 1000)
        got = await _post(server, status=400, prompt=["a"] * 1001, suffix=suffix)
        assert got["error"]["param"] == "suffix" and "1001 pairs" in got["error"]["message"]

    _run(body, max_model_len=2**15)


def test_other_models_refuse_it() -> None:
    async def body() -> None:
        async with fake_server() as server:
            got = await _post(server, status=400, prompt="a", suffix="z")
            assert got["error"]["param"] == "suffix"
            assert "does not fill in the middle" in got["error"]["message"]
            assert (await _post(server, prompt="a", suffix=""))["object"] == "text_completion"

    asyncio.run(body())
