"""Routes of models that pool."""

from __future__ import annotations

from dataclasses import replace

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.error_shapes import COHERE

_CLASSIFY = (Task.CLASSIFY,)
_POOLING = tuple(task for task in Task if task.pools and task is not Task.MEDIA_EMBED)
_SCORE = (Task.CLASSIFY, Task.EMBED, Task.TOKEN_EMBED)


def _pools(
    name: str, path: str, tasks: tuple[Task, ...], handler: str, protocol: str, body: str
) -> Endpoint:
    """A route of models that pool."""
    return Endpoint(
        name=name,
        method="POST",
        path=path,
        handler=handler,
        scope=Scope.INFERENCE,
        tasks=tasks,
        transport=Transport.JSON,
        request=f"{protocol}:{body}Request",
        response=f"{protocol}:{body}Response",
        queued=True,
    )


POOLING_ENDPOINTS = (
    _pools(
        "classify", "/classify", _CLASSIFY, "classify:create", "classification", "Classification"
    ),
    Endpoint(
        name="cohere_embed",
        method="POST",
        path="/v2/embed",
        handler="cohere_embed:create",
        scope=Scope.INFERENCE,
        tasks=(Task.EMBED,),
        transport=Transport.JSON,
        request="cohere_embed:CohereEmbedRequest",
        response="cohere_embed:CohereEmbedResponse",
        errors=COHERE,
        queued=True,
    ),
    replace(
        _pools(
            "embeddings",
            "/v1/embeddings",
            (Task.EMBED,),
            "embeddings:create",
            "embedding",
            "Embedding",
        ),
        binary=True,
    ),
    _pools(
        "media_embeddings",
        "/v1/media/embeddings",
        (Task.MEDIA_EMBED,),
        "media_embeddings:create",
        "media_embedding",
        "MediaEmbedding",
    ),
    replace(
        _pools("pooling", "/pooling", _POOLING, "pooling:create", "pooling", "Pooling"),
        response="pooling:POOLED",
        binary=True,
    ),
    _pools("rerank", "/rerank", _SCORE, "score:rerank", "score", "Rerank"),
    _pools("rerank_v1", "/v1/rerank", _SCORE, "score:rerank", "score", "Rerank"),
    _pools("rerank_v2", "/v2/rerank", _SCORE, "score:rerank", "score", "Rerank"),
    _pools("score", "/score", _SCORE, "score:create", "score", "Score"),
    _pools("score_v1", "/v1/score", _SCORE, "score:create", "score", "Score"),
)
