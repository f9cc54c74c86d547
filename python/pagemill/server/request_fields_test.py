"""Every field of every request: bad values are refused in the field's own name."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from httpx import Response

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.protocol.chat import RULES as CHAT_RULES
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.completion import RULES as COMPLETION_RULES
from pagemill.server.protocol.completion import CompletionRequest
from pagemill.server.protocol.embedding import RULES as EMBEDDING_RULES
from pagemill.server.protocol.embedding import EmbeddingRequest
from pagemill.server.protocol.responses import RULES as RESPONSES_RULES
from pagemill.server.protocol.responses import ResponsesRequest
from pagemill.server.testing.fake_server import FakeServer, fake_server

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RESPONSES = "/v1/responses"
MINIMAL: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "a"}]},
    COMPLETIONS: {"prompt": "a"},
    EMBEDDINGS: {"input": "a"},
    RESPONSES: {"input": "a"},
}
RULES = {
    CHAT: CHAT_RULES,
    COMPLETIONS: COMPLETION_RULES,
    EMBEDDINGS: EMBEDDING_RULES,
    RESPONSES: RESPONSES_RULES,
}
KINDS = {
    CHAT: ChatRequest,
    COMPLETIONS: CompletionRequest,
    EMBEDDINGS: EmbeddingRequest,
    RESPONSES: ResponsesRequest,
}

_MANY = {str(i): "x" for i in range(33)}
NO_FLAG = (2, "maybe", 1.5, [])
NO_TEXT = (5, True, ["x"], {})
NO_INTEGER = (1.5, "x", "1.5", "nan", "null", True, [1], {})
NO_NUMBER = ("x", "nan", "inf", "null", True, [1], {})
PRIVATE: Mapping[str, Sequence[Any]] = {
    "model": (*NO_TEXT, "no-such-model"),
    "truncate_prompt_tokens": (*NO_INTEGER, -2, 0, 257, 2**40),
    "truncation_side": ("middle", "", 1),
    "add_special_tokens": NO_FLAG,
    "cache_salt": (*NO_TEXT, "", "x" * 1025),
    "priority": (*NO_INTEGER, 1, -(2**40)),
    "request_id": (*NO_TEXT, "x" * 129),
    "timeout": (*NO_NUMBER, 0, 86401),
}
SAMPLING: Mapping[str, Sequence[Any]] = {
    **PRIVATE,
    "stream": NO_FLAG,
    "stream_options": (5, "x", [], {}, {"include_usage": 2}, {"continuous_usage_stats": "x"}),
    "n": (*NO_INTEGER, 0, 129, -1),
    "temperature": (*NO_NUMBER, -0.1, 101),
    "top_p": (*NO_NUMBER, 0, 1.1),
    "top_k": (*NO_INTEGER, -2, 2**31),
    "min_p": (*NO_NUMBER, -0.1, 2),
    "presence_penalty": (*NO_NUMBER, -3, 2.5),
    "frequency_penalty": (*NO_NUMBER, -3, 2.5),
    "repetition_penalty": (*NO_NUMBER, 0, 1001),
    "logit_bias": (5, [1], {"x": 1}, {"-1": 1}, {"1": "x"}, {"1": "nan"}, {"1": "inf"}),
    "seed": (*NO_INTEGER, 2**63, -(2**63) - 1),
    "min_tokens": (*NO_INTEGER, -1, 2**31),
    "ignore_eos": NO_FLAG,
    "stop": (5, {}, [""], [5], ["x"] * 65, "x" * 4097),
    "stop_token_ids": (5, "x", [-1], [2**31], ["x"], [1.5]),
    "include_stop_str_in_output": NO_FLAG,
    "skip_special_tokens": NO_FLAG,
    "prompt_logprobs": (*NO_INTEGER, 21, -1, -2),
    "stream_interval": (*NO_INTEGER, 0, -1),
    "return_routed_experts": NO_FLAG,
    "routed_experts_prompt_start": (*NO_INTEGER, -1, 2**31),
    "return_token_ids": NO_FLAG,
    "return_tokens_as_token_ids": NO_FLAG,
    "kv_transfer_params": (5, "x", [], {"a": []}, {"a": {}}, {"a": 1.5}, _MANY),
    "response_format": (
        *(5, "x", [], {}, {"type": "xml"}, {"type": "json_schema"}, {"type": "structural_tag"}),
        {"type": "json_object", "schema": 5},
        {"type": "json_object", "schema": {"type": "objec"}},
        {"type": "json_schema", "json_schema": {"schema": 5}},
        {"type": "json_schema", "json_schema": {"schema": {"type": "objec"}}},
    ),
    "structured_outputs": (
        *(5, "x", [], {}, {"json": 5}, {"json": "x"}, {"json": {"type": "objec"}}),
        *({"regex": 5}, {"regex": "(a"}, {"choice": []}, {"choice": [5]}, {"choice": [""]}),
        *(
            {"grammar": "start: x"},
            {"grammar": '{"a": 1}'},
            {"json": {}, "regex": "a"},
            {"structural_tag": {}},
        ),
        {"json_object": False},
    ),
    "guided_json": (5, "x", [], "null", {"type": "objec"}),
    "guided_regex": (*NO_TEXT, "(a"),
    "guided_choice": (5, "x", {}, [], [5], [""], ["a"] * 5000),
    "guided_grammar": (*NO_TEXT, "start: x", ""),
    "allowed_token_ids": (5, "x", {}, [], [-1], ["x"], [1.5], [256]),
    "bad_words": (5, "x", {}, [5], [""], ["x"] * 257, ["x" * 257]),
    "thinking_token_budget": (*NO_INTEGER, -2, 2**31, 5),
    "vllm_xargs": (5, "x", [], {"no_such": 1}, {"x": "x" * 65536}, dict.fromkeys("abcdefghi", 1)),
    "watermarking": (*NO_FLAG, True),
    "logprob_token_ids": (5, "x", {}, [-1], [2**31], ["x"], [1.5], [1] * 129),
    "repetition_detection": (
        *(5, "x", [], {"min_count": "x"}, {"max_pattern": 2}, {"min_pattern_size": 1}),
        *({"max_pattern_size": 2}, {"max_pattern_size": 1025, "min_count": 2}),
        {"max_pattern_size": 2, "min_count": 1},
    ),
    "use_beam_search": NO_FLAG,
    "length_penalty": (*NO_NUMBER, 10.5, -10.5),
}
BAD: Mapping[str, Mapping[str, Sequence[Any]]] = {
    CHAT: {
        **SAMPLING,
        "messages": (5, "x", {}, [], [5], [{}], [{"role": "user"}], "null"),
        "max_tokens": (*NO_INTEGER, 0, 2**31, 257),
        "max_completion_tokens": (*NO_INTEGER, 0, 2**31, 257),
        "logprobs": NO_FLAG,
        "top_logprobs": (*NO_INTEGER, 3, -2, 2**31),
        "echo": NO_FLAG,
        "add_generation_prompt": NO_FLAG,
        "continue_final_message": (*NO_FLAG, True),
        "chat_template": (*NO_TEXT, "x"),
        "chat_template_kwargs": (5, "x", [], {"chat_template": "x"}),
        "documents": (5, "x", {}, ["x"]),
        "reasoning_effort": NO_TEXT,
        "tools": (5, "x", {}, ["x"], [{"type": "function"}]),
        "parallel_tool_calls": NO_FLAG,
        "include_reasoning": NO_FLAG,
        "mm_processor_kwargs": (5, "x", [], {"max_pixels": 9}, {"use_audio_in_video": 1}),
        "tool_choice": (5, ["auto"], "required", {"type": "function"}),
    },
    COMPLETIONS: {
        **SAMPLING,
        "best_of": (*NO_INTEGER, 0, 2**31),
        "prompt": (5, {}, [], [[]], [""], "", [1, "a"], [[1], [True]], [1.5], [-1], [256]),
        "prompt_embeds": (5, {}, [5], "AAAA", ["AAAA"]),
        "suffix": (*NO_TEXT, "x"),
        "decoder_prompt": (5, {}, [1.5], ["a"], "x", [1]),
        "max_tokens": (*NO_INTEGER, -1, 0, 2**31, 256),
        "logprobs": (*NO_INTEGER, 21, -1, -2),
        "echo": NO_FLAG,
        "parse_special": NO_FLAG,
    },
    EMBEDDINGS: {
        **PRIVATE,
        "input": (5, {}, [], [[]], [""], [1, "a"], [-1], [256], [1] * 300),
        "messages": (5, "x", {}, [], [5], [{}], [{"role": "user"}]),
        "add_generation_prompt": NO_FLAG,
        "continue_final_message": NO_FLAG,
        "chat_template_kwargs": (5, "x", []),
        "encoding_format": (5, "hex"),
        "embed_dtype": (5, "float8", "x"),
        "endianness": (5, "middle"),
        "dimensions": (*NO_INTEGER, 0, 2**31, 3),
    },
    RESPONSES: {
        **{field: values for field, values in SAMPLING.items() if field != "add_special_tokens"},
        "input": (5, {}, [], [5], [{}], [{"role": "user"}], [{"type": "item_reference"}]),
        "instructions": NO_TEXT,
        "previous_response_id": (*NO_TEXT, "x" * 513, "resp_absent"),
        "conversation": (5, [], {}, {"id": 5}, "x" * 513, "conv_absent", {"id": "conv_absent"}),
        "store": NO_FLAG,
        "background": (*NO_FLAG, True),
        "tools": (5, "x", {}, ["x"], [{"type": "function"}], [{"type": "web_search"}]),
        "tool_choice": (5, ["auto"], "any", {"type": "function"}),
        "parallel_tool_calls": NO_FLAG,
        "max_tool_calls": (*NO_INTEGER, 0, 2**31),
        "max_output_tokens": (*NO_INTEGER, 0, 2**31, 257),
        "text": (5, "x", [], {"format": 5}, {"verbosity": "x"}),
        "reasoning": (5, "x", [], {"effort": 5}, {"summary": "x" * 65}),
        "include": (5, "x", {}, [5], ["x"] * 65),
        "top_logprobs": (*NO_INTEGER, 3, -2, 2**31),
        "truncation": (5, "left"),
        "metadata": (5, "x", [], {"a": 5}, {"x" * 65: "x"}, {"x": "x" * 513}, _MANY),
        "user": (*NO_TEXT, "x" * 513),
        "safety_identifier": (*NO_TEXT, "x" * 513),
        "prompt_cache_key": (*NO_TEXT, "x" * 513),
        "service_tier": (*NO_TEXT, "x" * 65),
        "chat_template_kwargs": (5, "x", [], {"chat_template": "x"}),
        "include_reasoning": NO_FLAG,
    },
}
ROUTES = pytest.mark.parametrize("route", [CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES])


def run(route: str, test: Callable[[FakeServer], Coroutine[None, None, None]]) -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=4 if route == EMBEDDINGS else 0)) as server:
            await test(server)

    asyncio.run(body())


async def post(server: FakeServer, route: str, **fields: Any) -> Response:
    return await server.client.post(route, json={**MINIMAL[route], **fields})


@ROUTES
def test_the_table_has_every_field(route: str) -> None:
    assert BAD[route].keys() == set(KINDS[route].__struct_fields__)


@ROUTES
def test_bad_values_are_refused_in_the_fields_own_name(route: str) -> None:
    async def body(server: FakeServer) -> None:
        wrong: list[tuple[object, ...]] = []
        for field, values in BAD[route].items():
            for value in values:
                response = await post(server, route, **{field: value})
                error = response.json().get("error") or {}
                if error.get("param") != field or field not in error["message"]:
                    wrong.append((field, str(value)[:40], response.status_code, error))
        assert wrong == []

    run(route, body)


@ROUTES
def test_a_missing_field_is_named(route: str) -> None:
    async def body(server: FakeServer) -> None:
        for name in MINIMAL[route]:
            for value in ({}, {name: None}):
                response = await server.client.post(route, json=value)
                assert response.status_code == 400
                assert response.json()["error"]["param"] == name

    run(route, body)


@ROUTES
def test_null_counts_as_absent(route: str) -> None:
    async def body(server: FakeServer) -> None:
        fields = KINDS[route].__struct_fields__
        nulls = dict.fromkeys((*fields, *RULES[route].unsupported))
        response = await post(server, route, **{**nulls, **MINIMAL[route]})
        assert response.status_code == 200, response.text

    run(route, body)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 5.0}, 5),
        ({"max_tokens": "5"}, 5),
        ({"max_tokens": "5.0"}, 5),
        ({"max_tokens": 5, "temperature": "0.5", "seed": "7", "top_k": 3.0}, 5),
        ({"max_tokens": 5, "ignore_eos": "true"}, 5),
        ({"max_tokens": 5, "ignore_eos": 1}, 5),
        ({"max_tokens": 5, "logit_bias": {"97": "1.5"}, "stop_token_ids": ["1", 2.0]}, 5),
        ({"max_tokens": 5, "no_such_field": {}}, 5),
    ],
)
def test_numbers_and_flags_may_be_written_as_the_reference_system_takes_them(
    fields: Mapping[str, Any], tokens: int
) -> None:
    async def body(server: FakeServer) -> None:
        for route in (CHAT, COMPLETIONS):
            response = await post(server, route, **fields)
            assert response.status_code == 200, response.text
            assert response.json()["usage"]["completion_tokens"] == tokens

    run(COMPLETIONS, body)


# Values without effect; every other value of an unsupported field is refused.
HARMLESS: Mapping[str, Sequence[Any]] = {
    "grammar": ("",),
    "json_schema": ({},),
    "logits_processors": ([],),
    "prompt_embeds": ([],),
    "mm_processor_kwargs": ({},),
    "media_io_kwargs": ({},),
    "ec_transfer_params": ({},),
    "enable_response_messages": (False,),
    "previous_input_messages": ([],),
    "return_token_offsets": (False,),
    "return_mm_kwargs": (False,),
    "mm_payload": ("none",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "return_prompt_text": (False,),
    "return_routed_experts": (False,),
    "context_management": ([],),
    "top_logprobs": (0,),
    "n": (1,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "messages": ([],),
    "normalize": (True,),
    "use_activation": (True,),
    "padding": ("do_not_pad",),
}
REFUSED = ({}, [], "", 0, 2, "x", {"type": "json_object"}, ["audio"])


@ROUTES
def test_what_cannot_be_honoured_is_refused(route: str) -> None:
    async def body(server: FakeServer) -> None:
        for field in RULES[route].unsupported:
            harmless = HARMLESS.get(field, ())
            for value in REFUSED:
                if value in harmless:
                    continue
                error = (await post(server, route, **{field: value})).json().get("error")
                assert error is not None, (field, value)
                assert error["param"] == field
                assert error["message"].startswith(f"`{field}` is not supported")
            for value in harmless:
                response = await post(server, route, **{field: value})
                assert response.status_code == 200, (field, value, response.text)

    run(route, body)
