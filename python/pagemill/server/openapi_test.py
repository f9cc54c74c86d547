"""The OpenAPI document names every route, and the fields of the bodies."""

import asyncio

from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.fake_server import fake_server


def test_document() -> None:
    async def body() -> None:
        async with fake_server() as server:
            document = (await server.client.get("/openapi.json")).json()
            again = (await server.client.get("/openapi.json")).json()
        assert document == again
        for endpoint in ENDPOINTS:
            path = endpoint.path.replace("{model:path}", "{model}")
            assert endpoint.method.lower() in document["paths"][path]
        schemas = document["components"]["schemas"]
        chat = schemas["ChatRequest"]
        assert chat["required"] == ["messages"]
        assert chat["properties"]["n"]["minimum"] == 1
        body_of = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
        schema = body_of["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ChatRequest"}
        assert {"prompt", "logprobs", "echo"} <= set(schemas["CompletionRequest"]["properties"])

    asyncio.run(body())
