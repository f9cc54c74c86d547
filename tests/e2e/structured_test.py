"""Outputs that have to be something: over HTTP, with the engine in the server's process and not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "hobbies": {"type": "array", "items": {"enum": ["chess", "rowing"]}, "maxItems": 2},
    },
    "required": ["name", "age", "hobbies"],
    "additionalProperties": False,
}
MESSAGES: Any = [{"role": "user", "content": "Invent a person who plays chess."}]


@pytest.fixture(scope="module", params=["", "--isolate-engine"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    options = ["--max-model-len=1024", "--max-num-seqs=8", *filter(None, [request.param])]
    with serve(SMOLLM2, tmp_path_factory.mktemp("server"), options) as running:
        yield running


def complete(server: ServerProcess, status: int = 200, **fields: Any) -> Any:
    body = {"prompt": "A short list of things:", "max_tokens": 60, "temperature": 0, **fields}
    response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


def check_person(text: str) -> None:
    person = json.loads(text)
    assert set(person) == {"name", "age", "hobbies"}
    assert len(person["name"]) <= 20 and 0 <= person["age"] <= 150
    assert set(person["hobbies"]) <= {"chess", "rowing"}


def test_a_response_format_with_a_schema(server: ServerProcess) -> None:
    client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x")
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    for temperature in (0.0, 1.5):
        choice = client.chat.completions.create(
            model=NAME,
            messages=MESSAGES,
            response_format=wanted,
            temperature=temperature,
            seed=1,
            max_tokens=200,
        ).choices[0]
        assert choice.finish_reason == "stop"
        check_person(choice.message.content or "")
    parts = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,
        response_format=wanted,
        max_tokens=200,
        temperature=0,
        stream=True,
    )
    check_person("".join(part.choices[0].delta.content or "" for part in parts))


def test_every_field(server: ServerProcess) -> None:
    def text(**fields: Any) -> str:
        choice = complete(server, **fields)["choices"][0]
        assert choice["finish_reason"] == "stop"
        return choice["text"]

    for key in ("guided_regex", "regex"):
        fields = {"regex": r"[a-c]{3}/\d"} if key == "regex" else None
        sent = {"structured_outputs": fields} if fields else {key: r"[a-c]{3}/\d"}
        assert re.fullmatch(r"[a-c]{3}/\d", text(**sent))
    assert text(guided_choice=["zebra", "zoo"]) in ("zebra", "zoo")
    assert text(structured_outputs={"choice": ["only\n"]}) == "only\n"
    assert text(guided_json=json.dumps({"type": "boolean"})) in ("true", "false")
    assert text(structured_outputs={"json": {"enum": [17]}}) == "17"
    assert re.fullmatch("(yes|no)!", text(guided_grammar='start: ("yes" | "no") "!"'))
    assert re.fullmatch("(yes|no)!", text(guided_grammar='root ::= ("yes" | "no") "!"'))
    tag = {"begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]{2}"}, "end": "</n>"}
    format_ = {"type": "triggered_tags", "triggers": ["<n"], "tags": [tag], "at_least_one": True}
    tags: dict[str, Any] = {
        "type": "structural_tag",
        "format": {**format_, "stop_after_first": True},
    }
    for sent in ({"response_format": tags}, {"structured_outputs": {"structural_tag": tags}}):
        assert re.fullmatch("<n>[0-9]{2}</n>", text(**sent))
    format_ = {"type": "json_object", "schema": {"const": {"of": "llama.cpp"}}}
    assert json.loads(text(response_format=format_)) == {"of": "llama.cpp"}
    small = {"response_format": {"type": "json_object"}, "max_tokens": 300, "temperature": 1}
    for seed in range(3):
        choice = complete(server, **small, seed=seed)["choices"][0]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["text"]), dict)
        else:
            assert choice["text"].startswith("{")


def test_schemas_of_both_back_ends_with_other_limits(server: ServerProcess) -> None:
    """Limits of tokens are matchers in Python around those of the grammar, which are C++ or not."""
    plain: Any = {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3}
    whole = {**plain, "items": {**plain["items"], "multipleOf": 1}}
    for schema in (plain, whole):
        fields = {"guided_json": schema, "temperature": 1.2, "n": 3, "seed": 2, "max_tokens": 90}
        for limits in ({}, {"bad_words": ["1", "2"]}, {"stop": ["]"]}):
            for choice in complete(server, **fields, **limits)["choices"]:
                assert choice["finish_reason"] == "stop"
                values = json.loads(choice["text"] + ("]" if "stop" in limits else ""))
                assert len(values) <= 3 and all(value >= 0 for value in values)


def test_several_at_a_time_and_several_choices(server: ServerProcess) -> None:
    plain = complete(server)["choices"][0]["text"]

    def one(number: int) -> None:
        if number % 3 == 0:
            assert complete(server)["choices"][0]["text"] == plain
            return
        length = 1 + number
        fields = {"guided_regex": f"[a-z ]{{{length}}}", "n": 2, "temperature": 1, "seed": number}
        texts = [choice["text"] for choice in complete(server, **fields)["choices"]]
        assert all(re.fullmatch(f"[a-z ]{{{length}}}", text) for text in texts)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(16)))


def test_what_is_no_grammar_is_refused_before_anything_runs(server: ServerProcess) -> None:
    for field, value, message in (
        ("guided_regex", "(a", "regex"),
        ("guided_json", {"type": "objec"}, "objec"),
        ("structured_outputs", {"json": {"$ref": "#/nope"}}, "nope"),
        ("guided_grammar", "start: missing", "missing"),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"schema": {"type": 5}}},
            "`type` must",
        ),
    ):
        error = complete(server, 400, **{field: value})["error"]
        assert error["param"] == field and message in error["message"]
    error = complete(server, 400, guided_regex="a", guided_choice=["a"])["error"]
    assert "only one of them" in error["message"]


TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "add_person",
            "description": "Adds a person to the list.",
            "parameters": PERSON,
        },
    },
    {
        "type": "function",
        "function": {
            "name": "remove_person",
            "description": "Removes a person from the list.",
            "parameters": {
                "type": "object",
                "properties": {"id": {"type": "integer"}},
                "required": ["id"],
                "additionalProperties": False,
            },
        },
    },
]


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


def check_calls(message: Any, *names: str) -> None:
    assert message.tool_calls and not (message.content or "").strip()
    for call in message.tool_calls:
        assert call.function.name in names
        if call.function.name == "add_person":
            check_person(call.function.arguments)
        else:
            arguments = json.loads(call.function.arguments)
            assert list(arguments) == ["id"] and isinstance(arguments["id"], int)


def allowed(mode: str, *names: str) -> Any:
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize("temperature", [0.0, 1.2])
@pytest.mark.parametrize(
    ("choice", "names", "reason"),
    [
        ("required", ["add_person", "remove_person"], "tool_calls"),
        (named("add_person"), ["add_person"], "stop"),
        (allowed("required", "remove_person"), ["remove_person"], "tool_calls"),
    ],
    ids=["required", "named", "allowed"],
)
def test_calls_that_have_to_be(
    server: ServerProcess, choice: Any, names: list[str], reason: str, temperature: float
) -> None:
    """SmolLM2 of 135M parameters hardly calls a tool by itself."""
    client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x")
    request: Any = {
        "model": NAME,
        "messages": MESSAGES,
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 250,
        "temperature": temperature,
        "seed": 3,
    }
    answer = client.chat.completions.create(**request).choices[0]
    assert answer.finish_reason == reason
    check_calls(answer.message, *names)
    with client.chat.completions.stream(**request) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == reason
    check_calls(streamed.message, *names)


def test_other_apis_make_a_model_call(server: ServerProcess) -> None:
    functions = [tool["function"] for tool in TOOLS]
    flat = [{"type": "function", **function} for function in functions]
    some = {"type": "allowed_tools", "mode": "required", "tools": flat[1:]}
    for choice, names in (
        ("required", ["add_person", "remove_person"]),
        ({"type": "function", "name": "add_person"}, ["add_person"]),
        (some, ["remove_person"]),
    ):
        body: dict[str, Any] = {"input": MESSAGES, "tools": flat, "tool_choice": choice}
        body |= {"parallel_tool_calls": False, "max_output_tokens": 250, "temperature": 0}
        got = httpx.post(f"{server.base_url}/v1/responses", json=body, timeout=60)
        (call,) = got.json()["output"]
        assert call["type"] == "function_call" and call["name"] in names
        if call["name"] == "add_person":
            check_person(call["arguments"])
    tools = [{"name": f["name"], "input_schema": f["parameters"]} for f in functions]
    for choice in ({"type": "any"}, {"type": "tool", "name": "remove_person"}):
        choice |= {"disable_parallel_tool_use": True}
        body = {"model": NAME, "messages": MESSAGES, "tools": tools, "tool_choice": choice}
        body |= {"max_tokens": 250, "temperature": 0}
        got = httpx.post(f"{server.base_url}/v1/messages", json=body, timeout=60)
        (block,) = got.json()["content"]
        assert block["type"] == "tool_use" and got.json()["stop_reason"] == "tool_use"
        if block["name"] == "remove_person":
            assert isinstance(block["input"]["id"], int)
    body = {"messages": MESSAGES, "tools": TOOLS, "tool_choice": "REQUIRED"}
    body |= {"max_tokens": 250, "temperature": 0}
    got = httpx.post(f"{server.base_url}/v2/chat", json=body, timeout=60).json()
    assert got["finish_reason"] == "TOOL_CALL"
    for call in got["message"]["tool_calls"]:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_an_answer_beside_calls_has_the_schema(server: ServerProcess) -> None:
    client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x")
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    for seed in range(3):
        choice = client.chat.completions.create(
            model=NAME,
            messages=MESSAGES,
            tools=TOOLS,
            parallel_tool_calls=False,
            response_format=wanted,
            max_tokens=250,
            temperature=1,
            seed=seed,
        ).choices[0]
        if choice.message.tool_calls:
            check_calls(choice.message, "add_person", "remove_person")
        else:
            check_person(choice.message.content or "")


@pytest.mark.parametrize(("choice", "is_strict"), [("required", False), ("auto", True)])
def test_tools_that_no_grammar_can_have(
    server: ServerProcess, choice: Any, is_strict: bool
) -> None:
    client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x")
    function = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": 5}}}}
    tools: Any = [{"type": "function", "function": {**function, "strict": is_strict}}]
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(
            model=NAME, messages=MESSAGES, tools=tools, tool_choice=choice, max_tokens=4
        )


def test_tokens_that_may_not_come(server: ServerProcess) -> None:
    def tokens(**fields: Any) -> list[int]:
        story: dict[str, Any] = {"prompt": "Once upon a time, there", "return_token_ids": True}
        return complete(server, **story, **fields)["choices"][0]["token_ids"]

    def post(route: str, **fields: Any) -> Any:
        return httpx.post(f"{server.base_url}/{route}", json=fields, timeout=60).json()

    both = post("tokenize", prompt=" yes no", add_special_tokens=False)["tokens"]
    assert set(tokens(allowed_token_ids=both)) <= set(both)
    plain = tokens()
    word = post("detokenize", tokens=plain[:1])["prompt"]
    limited = tokens(bad_words=[word])
    assert plain[0] not in limited and len(limited) > 1
    regex = r" was an? [a-z]{3,9}\."
    text = complete(server, prompt="There", guided_regex=regex, bad_words=["was a"])
    assert re.fullmatch(" was an [a-z]{3,9}[.]", text["choices"][0]["text"])
    error = complete(server, 400, thinking_token_budget=5)["error"]
    assert error["param"] == "thinking_token_budget"
