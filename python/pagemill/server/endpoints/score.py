"""`POST /score`, `/rerank` and their paths with a version."""

from __future__ import annotations

import time

from pagemill.server.access.caller import Caller
from pagemill.server.errors import bad_request
from pagemill.server.pooling.contents import Content, Contents, read_contents
from pagemill.server.pooling.rows import pooling_options
from pagemill.server.pooling.scores import Reading, score
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
    """Scores pairs of queries and documents."""
    pipeline, _ = server.models.resolve(body.model, caller)
    queries, documents = _contents(body)
    if len(queries.contents) not in (1, len(documents.contents)):
        raise bad_request(
            f"`{queries.param}` has {len(queries.contents)} texts and `{documents.param}`"
            f" {len(documents.contents)}: send one, or as many.",
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
    documents = read_contents(body.documents, "documents", body.max_tokens_per_doc)
    values, num_tokens = await score(
        pipeline,
        read_contents(body.query, "query", body.max_tokens_per_query),
        documents,
        pooling_options(body, caller, "documents"),
        _reading(body),
    )
    order = sorted(range(len(values)), key=lambda index: -values[index])
    return RerankResponse(
        id=f"rerank-{body.request_id}",
        model=pipeline.model.name,
        results=[
            RankedDocument(
                index,
                values[index],
                _document(documents.contents[index]) if body.return_documents else None,
            )
            for index in order[: body.top_n or None]
        ],
        usage=PoolingUsage(num_tokens, num_tokens),
    )


def _reading(body: ScoringFields) -> Reading:
    return Reading(
        use_activation=body.use_activation,
        instruction=body.instruction,
        variables=body.chat_template_kwargs,
    )


def _document(content: Content) -> Document:
    return Document(content) if isinstance(content, str) else Document(multi_modal=content)


def _contents(body: ScoreRequest) -> tuple[Contents, Contents]:
    """The queries and the documents.

    Raises:
        ApiError: 400: there are none of both, or under several names, or one has no content.
    """
    given = {name for pair in _NAMES for name in pair if getattr(body, name) is not None}
    for names in _NAMES:
        if given == set(names):
            limits = (body.max_tokens_per_query, body.max_tokens_per_doc)
            queries, documents = (
                read_contents(getattr(body, name), name, limit)
                for name, limit in zip(names, limits, strict=True)
            )
            return queries, documents
    first = next((name for pair in _NAMES for name in pair if name in given), "queries")
    pairs = ", ".join(f"`{queries}` and `{documents}`" for queries, documents in _NAMES)
    raise bad_request(f"The body needs two fields with texts, which are one of: {pairs}.", first)
