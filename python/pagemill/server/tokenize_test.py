"""`/tokenize` and `/detokenize`; token ids are bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.testing.fake_server import FakeServer, fake_server

USER = {"role": "user", "content": "é"}
TOOL = {"type": "function", "function": {"name": "f"}}


def run(body: Callable[[FakeServer], Awaitable[None]], options: FakeOptions | None = None) -> None:
    async def main() -> None:
        async with fake_server(options) as server:
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, route: str, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post(route, json=fields)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize("pooled_size", [0, 4])
def test_a_text(pooled_size: int) -> None:
    async def body(server: FakeServer) -> None:
        whole = await post(server, "/tokenize", prompt="aé", return_token_strs=True)
        assert whole == {
            "count": 3,
            "max_model_len": 256,
            "tokens": list("aé".encode()),
            "token_strs": ["a", "\ufffd", "\ufffd"],
        }
        assert (await post(server, "/tokenize", prompt=""))["tokens"] == []
        assert await post(server, "/detokenize", tokens=whole["tokens"]) == {"prompt": "aé"}
        assert await post(server, "/detokenize", tokens=[]) == {"prompt": ""}

    run(body, FakeOptions(pooled_size=pooled_size))


def test_messages() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, "/tokenize", messages=[USER], tools=[TOOL])
        assert bytes(got["tokens"]).decode() == "user:é\nassistant:"
        assert server.renderer.rendered[-1].tools == [TOOL]
        got = await post(server, "/tokenize", messages=[USER], add_generation_prompt=False)
        assert bytes(got["tokens"]).decode() == "user:é"

    run(body)


def test_what_the_tokenizer_is() -> None:
    async def body(server: FakeServer) -> None:
        assert (await server.client.get("/tokenizer_info")).json() == {
            "vocab_size": 256,
            "model_max_length": 256,
            "chat_template": "{{ messages }}",
            "eos_token": "<eos>",
            **dict.fromkeys(("bos_token", "pad_token", "unk_token")),
        }

    run(body)


def test_the_log_names_unknown_fields_of_the_request_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(server: FakeServer) -> None:
        await post(server, "/tokenize", prompt="a")
        await post(server, "/tokenize", prompt="a", content="b")

    with caplog.at_level("INFO", "pagemill.server"):
        run(body)
    assert [r.getMessage() for r in caplog.records if "unknown" in r.getMessage()] == [
        "ignored 1 unknown request field(s): 'content'"
    ]


def test_refusals() -> None:
    async def body(server: FakeServer) -> None:
        for route, param, fields in (
            ("/tokenize", "prompt", {}),
            ("/tokenize", "prompt", {"prompt": "a", "messages": [USER]}),
            ("/tokenize", "prompt", {"prompt": 5}),
            ("/tokenize", "messages", {"messages": []}),
            ("/tokenize", "messages", {"messages": [{"role": "user"}]}),
            ("/tokenize", "tools", {"messages": [USER], "tools": [5]}),
            ("/tokenize", "chat_template", {"messages": [USER], "chat_template": "x"}),
            (
                *("/tokenize", "chat_template_kwargs"),
                {"messages": [USER], "chat_template_kwargs": {"chat_template": "x"}},
            ),
            ("/tokenize", "model", {"prompt": "a", "model": "absent"}),
            ("/tokenize", "prompt", {"prompt": "a" * 90_000}),
            ("/detokenize", "tokens", {}),
            ("/detokenize", "tokens", {"tokens": [-1]}),
            ("/detokenize", "tokens", {"tokens": [256]}),
            ("/detokenize", "tokens", {"tokens": ["x"]}),
        ):
            status = 404 if param == "model" else 400
            error = (await post(server, route, status, **fields))["error"]
            assert error["param"] == param and param in error["message"], fields

    run(body)
