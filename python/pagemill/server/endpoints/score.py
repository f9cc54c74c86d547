"""`POST /score`, `/rerank` and their paths with a version."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pagemill.server.access.caller import Caller
from pagemill.server.errors import bad_request
from pagemill.server.pooling.rows import pooling_options
from pagemill.server.pooling.scores import Reading, Texts, score
from pagemill.server.protocol.pooling import PoolingUsage
from pagemill.server.protocol.score import (
    Document,
    RankedDocument,
    RerankRequest,
    RerankResponse,
    Score,
    ScoreRequest,
    ScoreResponse,
    ScoringFields,
)
from pagemill.server.state import ServerState

_NAMES = (
    ("queries", "documents"),
    ("queries", "items"),
    ("text_1", "text_2"),
    ("data_1", "data_2"),
)


async def create(server: ServerState, body: ScoreRequest, caller: Caller) -> ScoreResponse:
    """Scores pairs of texts."""
    pipeline, _ = server.models.resolve(body.model, caller)
    queries, documents = _texts(body)
    if len(queries.texts) not in (1, len(documents.texts)):
        raise bad_request(
            f"`{queries.param}` has {len(queries.texts)} texts and `{documents.param}`"
            f" {len(documents.texts)}: send one, or as many.",
            queries.param,
        )
    options = pooling_options(body, caller, documents.param)
    values, num_tokens = await score(pipeline, queries, documents, options, _reading(body))
    return ScoreResponse(
        id=f"score-{body.request_id}",
        created=int(time.time()),
        model=pipeline.model.name,
        data=[Score(index, value) for index, value in enumerate(values)],
        usage=PoolingUsage(num_tokens, num_tokens),
    )


async def rerank(server: ServerState, body: RerankRequest, caller: Caller) -> RerankResponse:
    """Sorts documents by how well they fit a query."""
    pipeline, _ = server.models.resolve(body.model, caller)
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    options = pooling_options(body, caller, "documents")
    values, num_tokens = await score(
        pipeline,
        Texts([body.query], "query", body.max_tokens_per_query or None),
        Texts(texts, "documents", body.max_tokens_per_doc or None),
        options,
        _reading(body),
    )
    order = sorted(range(len(texts)), key=lambda index: -values[index])
    return RerankResponse(
        id=f"rerank-{body.request_id}",
        model=pipeline.model.name,
        results=[
            RankedDocument(
                index, values[index], Document(texts[index]) if body.return_documents else None
            )
            for index in order[: body.top_n or None]
        ],
        usage=PoolingUsage(num_tokens, num_tokens),
    )


def _reading(body: ScoringFields) -> Reading:
    return Reading(use_activation=body.use_activation, instruction=body.instruction)


def _texts(body: ScoreRequest) -> tuple[Texts, Texts]:
    """The queries and the documents.

    Raises:
        ApiError: 400: there are none of both, or under several names.
    """
    given = {name for pair in _NAMES for name in pair if getattr(body, name) is not None}
    for names in _NAMES:
        if given == set(names):
            limits = (body.max_tokens_per_query, body.max_tokens_per_doc)
            queries, documents = (
                Texts(_listed(getattr(body, name)), name, limit or None)
                for name, limit in zip(names, limits, strict=True)
            )
            return queries, documents
    first = next((name for pair in _NAMES for name in pair if name in given), "queries")
    pairs = ", ".join(f"`{queries}` and `{documents}`" for queries, documents in _NAMES)
    raise bad_request(f"The body needs two fields with texts, which are one of: {pairs}.", first)


def _listed(texts: str | Sequence[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts
