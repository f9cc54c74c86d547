"""The OpenAPI document is valid, names every route, and describes what the routes answer."""

import asyncio
import json
import re
from typing import Any

import httpx
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.task import Task
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.testing.fake_server import fake_server
from pagemill.server.testing.fake_tools import FakeTools

KEY = {"authorization": "Bearer k"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    async def get() -> Any:
        async with fake_server(api_keys=["k"], loaded=False) as server:
            first = await server.client.get("/openapi.json", headers=KEY)
            again = await server.client.get("/openapi.json", headers=KEY)
        assert first.content == again.content
        return first.json()

    return asyncio.run(get())


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def test_it_is_valid(document: dict[str, Any]) -> None:
    OPENAPI_31_VALIDATOR.validate(document)
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": DIALECT, **schema})
    # What the schema of OpenAPI cannot say: references lead somewhere, parameters are declared.
    for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(set(names)) == len(names)
    for (_, path), operation in operations(document).items():
        declared = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
        assert declared == re.findall(r"\{(.*?)\}", path)


def test_it_names_every_route(document: dict[str, Any]) -> None:
    routes = {(e.method.lower(), e.path.replace("{model:path}", "{model}")) for e in ENDPOINTS}
    assert set(operations(document)) == routes
    schemas = document["components"]["schemas"]
    assert schemas["ChatRequest"]["required"] == ["messages"]
    assert schemas["ChatRequest"]["properties"]["n"]["minimum"] == 1
    assert {"prompt", "logprobs", "echo"} <= set(schemas["CompletionRequest"]["properties"])
    for (method, path), operation in operations(document).items():
        is_open = path in ("/health", "/ping", "/ready")
        assert ("401" in operation["responses"]) == ("security" in operation) == (not is_open)
        is_json = method == "post" and not is_open and not re.search("(response|batch)_id", path)
        assert ("requestBody" in operation) == is_json
        assert {"400", "404", "413", "429"}.issubset(operation["responses"]) == is_json
    chat = document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(chat["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == {
        "text/plain"
    }
    assert "Retry-After" in chat["429"]["headers"]
    pooled = document["paths"]["/pooling"]["post"]["responses"]["200"]["content"]
    names = ("PoolingResponse", "PluginResponse")
    answers = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    content = {"schema": {"type": "string", "format": "binary"}}
    assert pooled == {
        "application/json": {"schema": {"anyOf": answers}},
        "application/octet-stream": content,
    }


def test_it_names_the_routes_of_the_loaded_model() -> None:
    async def paths(options: FakeOptions) -> set[str]:
        async with fake_server(options) as server:
            return set((await server.client.get("/openapi.json")).json()["paths"])

    async def body() -> None:
        generates, embeds = await paths(FakeOptions()), await paths(FakeOptions(pooled_size=4))
        assert {path for path in generates - embeds if "{" not in path} == {
            "/generative_scoring",
            "/inference/v1/generate",
            "/v1/chat/completions",
            "/v1/chat/completions/batch",
            "/v1/chat/completions/derender",
            "/v1/chat/completions/render",
            "/v1/completions",
            "/v1/completions/derender",
            "/v1/completions/render",
            "/v1/conversations",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/messages/render",
            "/v1/realtime",
            "/v1/responses",
            "/v1/responses/input_tokens",
            "/v1/responses/render",
            "/v1/systemone",
            "/cohere/v2/chat",
            "/v2/chat",
        }
        scoring = {"/rerank", "/score", "/v1/rerank", "/v1/score", "/v2/rerank"}
        assert embeds - generates == {"/pooling", "/v1/embeddings", "/v2/embed"} | scoring
        classifies = await paths(FakeOptions(pooled_size=1, task=Task.CLASSIFY))
        assert classifies - generates == {"/classify", "/pooling"} | scoring
        of_tokens = await paths(FakeOptions(pooled_size=1, task=Task.TOKEN_CLASSIFY))
        assert of_tokens - generates == {"/pooling"}

    asyncio.run(body())


def check(document: dict[str, Any], path: str, response: httpx.Response) -> None:
    """The response is one that the document describes."""
    operation = document["paths"][path][response.request.method.lower()]
    described = operation["responses"][str(response.status_code)]
    assert all(name in response.headers for name in described["headers"])
    media_type = response.headers["content-type"].partition(";")[0]
    schema = described["content"][media_type]["schema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
    if media_type == "application/json":
        validator.validate(response.json())
    elif media_type == "text/event-stream":
        lines = response.text.splitlines()
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert (events[-1] == "[DONE]") != any(line.startswith("event: ") for line in lines)
        if events[-1] == "[DONE]":
            events.pop()
        assert events
        payload = schema["properties"]["data"]["anyOf"][0]["contentSchema"]
        definitions = {"components": document["components"]}
        validator = jsonschema_rs.Draft202012Validator({**payload, **definitions})
        for event in events:
            validator.validate(json.loads(event))


_SCORED: dict[str, Any] = {"queries": "a", "documents": ["b", "c"]}
_OF_CLASSIFIER: list[tuple[str, dict[str, Any]]] = [
    ("/classify", {"input": ["a", "b"]}),
    ("/classify", {}),
    ("/pooling", {"input": "a"}),
    ("/pooling", {"input": "a", "task": "embed"}),
    ("/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
    ("/rerank", {"query": "a", "documents": ["b"], "return_documents": False}),
    ("/rerank", {"query": "a", "documents": []}),
    ("/score", _SCORED),
    ("/v1/score", {"queries": "a"}),
]


def test_it_describes_the_answers(document: dict[str, Any]) -> None:
    generating = {"max_tokens": 3, "return_token_ids": True, "n": 2}
    messages = [{"role": "user", "content": "a"}]
    tools = {"tools": [{"type": "mcp", "server_label": "weather"}], "tool_choice": "none"}
    payload: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": "a", "logprobs": 2, **generating}),
        ("/v1/completions", {"prompt": "a", "stream": True, **generating}),
        ("/v1/chat/completions", {"messages": messages, "logprobs": True, **generating}),
        ("/v1/chat/completions", {"messages": messages, "stream": True, **generating}),
        ("/v1/chat/completions", {"messages": messages, "model": "absent"}),
        ("/v1/chat/completions", {"messages": 5}),
        ("/v1/responses", {"input": "a", "max_output_tokens": 3}),
        ("/v1/responses", {"input": "a", "max_output_tokens": 3, "stream": True}),
        ("/v1/responses", {"input": "a", "max_output_tokens": 3, **tools}),
        ("/v1/responses", {"input": "a", "max_output_tokens": 3, "stream": True, **tools}),
        ("/v1/responses", {"input": 5}),
        ("/v1/responses/input_tokens", {"input": "a"}),
        ("/invocations", {"prompt": "a", **generating}),
        ("/invocations", {"messages": messages, "stream": True}),
        ("/invocations", {}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/messages", {"messages": messages, "max_tokens": 3}),
        ("/v1/messages", {"messages": messages, "max_tokens": 3, "stream": True}),
        ("/v1/messages", {"messages": messages, "model": "absent", "max_tokens": 3}),
        ("/v1/messages", {}),
        ("/v1/messages/count_tokens", {"messages": messages}),
        ("/v2/chat", {"messages": messages, "logprobs": True}),
        ("/v2/chat", {"messages": messages, "logprobs": True, "stream": True}),
        ("/v2/chat", {"messages": messages, "model": "absent"}),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}),
        ("/tokenize", {"messages": messages}),
        ("/tokenize", {}),
        ("/detokenize", {"tokens": [97]}),
    ]

    async def body() -> None:
        async with fake_server(api_keys=["k"], tools=[FakeTools()]) as server:
            for path, content in payload:
                response = await server.client.post(path, json=content, headers=KEY)
                check(document, path, response)
            for _, path in operations(document):
                if "get" in document["paths"][path]:
                    url = path.replace("{model}", "fake")
                    check(document, path, await server.client.get(url, headers=KEY))
                    check(document, path, await server.client.get(url))
            server.state.lifecycle.begin_drain()
            for path in ("/ready", "/v1/models"):
                check(document, path, await server.client.get(path, headers=KEY))
        async with fake_server(FakeOptions(pooled_size=4)) as server:
            for encoding in ("float", "base64"):
                content = {"input": ["a", "b"], "encoding_format": encoding}
                response = await server.client.post("/v1/embeddings", json=content)
                assert response.status_code == 200
                check(document, "/v1/embeddings", response)
        async with fake_server(FakeOptions(pooled_size=1, task=Task.CLASSIFY)) as server:
            for path, content in _OF_CLASSIFIER:
                check(document, path, await server.client.post(path, json=content))
        async with fake_server(FakeOptions(pooled_size=4, task=Task.TOKEN_EMBED)) as server:
            for path, content in (("/pooling", {"input": ["a", "bc"]}), ("/score", _SCORED)):
                check(document, path, await server.client.post(path, json=content))
        image = {"type": "image_url", "image_url": "data:;base64,eA=="}
        async with fake_server(FakeOptions(pooled_size=4, task=Task.MEDIA_EMBED)) as server:
            path = "/v1/media/embeddings"
            for content, status in (({"input": [image, image]}, 200), ({"input": [{}]}, 400)):
                response = await server.client.post(path, json=content)
                assert response.status_code == status
                check(document, path, response)

    asyncio.run(body())
