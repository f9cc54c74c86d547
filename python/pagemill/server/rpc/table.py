"""The calls there are. A new one is a row here and a line of pagemill.proto."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.endpoints.table import endpoint_named

SERVICE = "pagemill.v1.Inference"


@dataclass(frozen=True, slots=True)
class Method:
    """One call, which does what a route of the HTTP API does.

    `streams` is the field `stream` of the route's body; None: the route has none.
    """

    name: str
    endpoint: Endpoint
    streams: bool | None = None

    @property
    def path(self) -> str:
        """Its path in HTTP/2."""
        return f"/{SERVICE}/{self.name}"


METHODS = (
    Method("Chat", endpoint_named("chat_completions"), streams=False),
    Method("Complete", endpoint_named("completions"), streams=False),
    Method("Detokenize", endpoint_named("detokenize")),
    Method("Embed", endpoint_named("embeddings")),
    Method("Generate", endpoint_named("generate"), streams=False),
    Method("GetModel", endpoint_named("model")),
    Method("GetTokenizer", endpoint_named("tokenizer_info")),
    Method("ListModels", endpoint_named("models")),
    Method("RenderChat", endpoint_named("chat_completions_render")),
    Method("RenderCompletion", endpoint_named("completions_render")),
    Method("StreamChat", endpoint_named("chat_completions"), streams=True),
    Method("StreamComplete", endpoint_named("completions"), streams=True),
    Method("StreamGenerate", endpoint_named("generate"), streams=True),
    Method("Tokenize", endpoint_named("tokenize")),
)
