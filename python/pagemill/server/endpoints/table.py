"""The endpoints there are. A new one is a module here and a row."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from pagemill.inputs.task import Task
from pagemill.server.answer import Answer
from pagemill.server.caller import Caller, Scope
from pagemill.server.error_shapes import ANTHROPIC, OPENAI, ErrorShape
from pagemill.server.protocol.decode import FieldRules

if TYPE_CHECKING:
    from pagemill.server.state import ServerState

Handler = Callable[["ServerState", Any, Caller], Awaitable[Answer]]
"""(server, body, caller) -> answer. The body is a `request` struct. Knows nothing of HTTP."""


class Transport(Enum):
    """Where the fields of a request come from."""

    JSON = auto()
    """A JSON object: the body of a POST, or a line of a batch file."""
    FORM = auto()
    """A form with a file (multipart/form-data), which is stored while it is read."""
    PATH = auto()
    """The parameters of an HTTP path and its query; such an endpoint exists over HTTP only."""
    WEBSOCKET = auto()
    """The same, of a request that becomes a WebSocket."""


@dataclass(frozen=True, slots=True)
class BodyType:
    """A request's struct, and the rules for fields that it does not have."""

    kind: type[Any]
    rules: FieldRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One route.

    `handler` is "module:function" below this package; `request`, `response` and `event` (of a
    stream) are "module:Type" below `protocol`. They are imported when they are needed. A module of
    `request` has its `RULES`; without `request` the handler gets the fields as they are. Without
    `response` the answer is an object of strings. `tasks`: of models that have it; none: all do.
    `errors`: those of the API that the route belongs to. `queued`: its requests wait in the
    engine's queue. `statuses` are of errors that only some routes have.
    """

    name: str
    method: str
    path: str
    handler: str
    scope: Scope
    tasks: tuple[Task, ...] = ()
    transport: Transport = Transport.PATH
    request: str = ""
    response: str = ""
    event: str = ""
    media_type: str = "application/json"
    errors: ErrorShape = OPENAI
    queued: bool = False
    statuses: tuple[int, ...] = ()

    @property
    def is_metered(self) -> bool:
        """Whether it counts against a key's limits: it is work for the model or its tokenizer."""
        return self.scope is Scope.INFERENCE and self.transport is Transport.JSON

    def load(self) -> Handler:
        """The handler."""
        module, _, function = self.handler.partition(":")
        return getattr(importlib.import_module(f"{__package__}.{module}"), function)

    def request_type(self) -> BodyType | None:
        """The type of the handler's body."""
        if not self.request:
            return None
        module, kind = _protocol(self.request)
        return BodyType(kind, module.RULES)

    def response_type(self) -> Any:
        """The type of an answer."""
        return _protocol(self.response)[1] if self.response else dict[str, str]

    def event_type(self) -> Any:
        """The type of a stream's events; None for an endpoint without streams."""
        return _protocol(self.event)[1] if self.event else None


def _protocol(target: str) -> tuple[Any, Any]:
    name, _, kind = target.partition(":")
    module = importlib.import_module(f"pagemill.server.protocol.{name}")
    return module, getattr(module, kind)


_GENERATE = (Task.GENERATE,)
_POOLING = tuple(task for task in Task if task is not Task.GENERATE)
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


ENDPOINTS = (
    Endpoint(
        name="batch",
        method="GET",
        path="/v1/batches/{batch_id}",
        handler="batches:retrieve",
        scope=Scope.INFERENCE,
        request="batch:BatchName",
        response="batch:Batch",
    ),
    Endpoint(
        name="batch_cancel",
        method="POST",
        path="/v1/batches/{batch_id}/cancel",
        handler="batches:cancel",
        scope=Scope.INFERENCE,
        request="batch:BatchName",
        response="batch:Batch",
        statuses=(507,),
    ),
    Endpoint(
        name="batches",
        method="GET",
        path="/v1/batches",
        handler="batches:list_batches",
        scope=Scope.INFERENCE,
        request="batch:ListBatchesRequest",
        response="batch:BatchList",
    ),
    Endpoint(
        name="batches_create",
        method="POST",
        path="/v1/batches",
        handler="batches:create",
        scope=Scope.INFERENCE,
        transport=Transport.JSON,
        request="batch:CreateBatchRequest",
        response="batch:Batch",
        statuses=(507,),
    ),
    Endpoint(
        name="chat_completions",
        method="POST",
        path="/v1/chat/completions",
        handler="chat_completions:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="chat:ChatRequest",
        response="chat:ChatResponse",
        event="chat:ChatChunk",
        queued=True,
    ),
    Endpoint(
        name="chat_completions_derender",
        method="POST",
        path="/v1/chat/completions/derender",
        handler="chat_completions:derender",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="derender:DerenderRequest",
        response="chat:ChatResponse",
    ),
    Endpoint(
        name="chat_completions_render",
        method="POST",
        path="/v1/chat/completions/render",
        handler="chat_completions:render",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="chat:ChatRequest",
        response="generate:GenerateRequest",
    ),
    _pools(
        "classify",
        "/classify",
        (Task.CLASSIFY,),
        "classify:create",
        "classification",
        "Classification",
    ),
    Endpoint(
        name="completions",
        method="POST",
        path="/v1/completions",
        handler="completions:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="completion:CompletionRequest",
        response="completion:CompletionResponse",
        event="completion:CompletionResponse",
        queued=True,
    ),
    Endpoint(
        name="completions_render",
        method="POST",
        path="/v1/completions/render",
        handler="completions:render",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="completion:CompletionRequest",
        response="generate:RENDERED",
    ),
    Endpoint(
        name="detokenize",
        method="POST",
        path="/detokenize",
        handler="tokenize:undo",
        scope=Scope.INFERENCE,
        transport=Transport.JSON,
        request="tokenize:DetokenizeRequest",
        response="tokenize:DetokenizeResponse",
    ),
    _pools(
        "embeddings", "/v1/embeddings", (Task.EMBED,), "embeddings:create", "embedding", "Embedding"
    ),
    Endpoint(
        name="file",
        method="GET",
        path="/v1/files/{file_id}",
        handler="files:retrieve",
        scope=Scope.INFERENCE,
        request="file:FileName",
        response="file:FileObject",
    ),
    Endpoint(
        name="file_content",
        method="GET",
        path="/v1/files/{file_id}/content",
        handler="files:content",
        scope=Scope.INFERENCE,
        request="file:FileName",
        response="file:CONTENT",
        media_type="application/octet-stream",
    ),
    Endpoint(
        name="file_delete",
        method="DELETE",
        path="/v1/files/{file_id}",
        handler="files:delete",
        scope=Scope.INFERENCE,
        request="file:FileName",
        response="file:DeletedFile",
        statuses=(409, 507),
    ),
    Endpoint(
        name="file_upload",
        method="POST",
        path="/v1/files",
        handler="files:upload",
        scope=Scope.INFERENCE,
        transport=Transport.FORM,
        request="file:UploadRequest",
        response="file:FileObject",
        statuses=(507,),
    ),
    Endpoint(
        name="files",
        method="GET",
        path="/v1/files",
        handler="files:list_files",
        scope=Scope.INFERENCE,
        request="file:ListFilesRequest",
        response="file:FileList",
    ),
    Endpoint(
        name="generate",
        method="POST",
        path="/inference/v1/generate",
        handler="generate:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="generate:GenerateRequest",
        response="generate:GenerateResponse",
        event="generate:GenerateResponse",
        queued=True,
    ),
    Endpoint(
        name="health",
        method="GET",
        path="/health",
        handler="probes:health",
        scope=Scope.OPEN,
        response="status:Status",
    ),
    Endpoint(
        name="invocations",
        method="POST",
        path="/invocations",
        handler="invocations:create",
        scope=Scope.INFERENCE,
        transport=Transport.JSON,
        response="status:DOCUMENT",
        event="status:DOCUMENT",
        queued=True,
    ),
    Endpoint(
        name="kv_events",
        method="POST",
        path="/kv_events",
        handler="kv_events:poll",
        scope=Scope.ADMIN,
        transport=Transport.JSON,
        request="kv_event:KvEventsRequest",
        response="kv_event:KvEvents",
    ),
    Endpoint(
        name="load",
        method="GET",
        path="/load",
        handler="about:load",
        scope=Scope.KEY,
        response="status:Load",
    ),
    Endpoint(
        name="messages",
        method="POST",
        path="/v1/messages",
        handler="messages:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="messages:MessagesRequest",
        response="messages:MessagesResponse",
        event="messages:StreamEvent",
        errors=ANTHROPIC,
        queued=True,
    ),
    Endpoint(
        name="messages_count_tokens",
        method="POST",
        path="/v1/messages/count_tokens",
        handler="messages:count_tokens",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="messages:CountTokensRequest",
        response="messages:TokenCount",
        errors=ANTHROPIC,
    ),
    Endpoint(
        name="messages_render",
        method="POST",
        path="/v1/messages/render",
        handler="messages:render",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="messages:MessagesRequest",
        response="generate:GenerateRequest",
        errors=ANTHROPIC,
    ),
    Endpoint(
        name="metrics",
        method="GET",
        path="/metrics",
        handler="about:metrics",
        scope=Scope.METRICS,
        response="status:METRICS",
        media_type="text/plain",
    ),
    Endpoint(
        name="model",
        method="GET",
        path="/v1/models/{model:path}",
        handler="models:retrieve",
        scope=Scope.KEY,
        request="model:ModelName",
        response="model:ModelCard",
    ),
    Endpoint(
        name="models",
        method="GET",
        path="/v1/models",
        handler="models:list_models",
        scope=Scope.KEY,
        response="model:ModelList",
    ),
    Endpoint(
        name="openapi",
        method="GET",
        path="/openapi.json",
        handler="about:openapi",
        scope=Scope.KEY,
        response="status:DOCUMENT",
    ),
    Endpoint(
        name="ping",
        method="GET",
        path="/ping",
        handler="probes:ready",
        scope=Scope.OPEN,
        response="status:Status",
    ),
    Endpoint(
        name="ping_post",
        method="POST",
        path="/ping",
        handler="probes:ready",
        scope=Scope.OPEN,
        response="status:Status",
    ),
    _pools("pooling", "/pooling", _POOLING, "pooling:create", "pooling", "Pooling"),
    Endpoint(
        name="ready",
        method="GET",
        path="/ready",
        handler="probes:ready",
        scope=Scope.OPEN,
        response="status:Status",
    ),
    Endpoint(
        name="realtime",
        method="GET",
        path="/v1/realtime",
        handler="realtime:connect",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.WEBSOCKET,
        request="realtime:ConnectRequest",
        statuses=(426,),
    ),
    _pools("rerank", "/rerank", _SCORE, "score:rerank", "score", "Rerank"),
    _pools("rerank_v1", "/v1/rerank", _SCORE, "score:rerank", "score", "Rerank"),
    _pools("rerank_v2", "/v2/rerank", _SCORE, "score:rerank", "score", "Rerank"),
    Endpoint(
        name="response",
        method="GET",
        path="/v1/responses/{response_id}",
        handler="responses:retrieve",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:RetrieveRequest",
        response="responses:Response",
        event="response_events:ResponseEvent",
    ),
    Endpoint(
        name="response_cancel",
        method="POST",
        path="/v1/responses/{response_id}/cancel",
        handler="responses:cancel",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:StoredResponse",
        response="responses:Response",
    ),
    Endpoint(
        name="response_delete",
        method="DELETE",
        path="/v1/responses/{response_id}",
        handler="responses:delete",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:StoredResponse",
        response="response_store:DeletedResponse",
    ),
    Endpoint(
        name="response_input_items",
        method="GET",
        path="/v1/responses/{response_id}/input_items",
        handler="responses:list_input_items",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:InputItemsRequest",
        response="response_store:InputItems",
    ),
    Endpoint(
        name="responses",
        method="POST",
        path="/v1/responses",
        handler="responses:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="responses:ResponsesRequest",
        response="responses:Response",
        event="response_events:ResponseEvent",
        queued=True,
    ),
    Endpoint(
        name="responses_render",
        method="POST",
        path="/v1/responses/render",
        handler="responses:render",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="responses:ResponsesRequest",
        response="generate:GenerateRequest",
    ),
    _pools("score", "/score", _SCORE, "score:create", "score", "Score"),
    _pools("score_v1", "/v1/score", _SCORE, "score:create", "score", "Score"),
    Endpoint(
        name="tokenize",
        method="POST",
        path="/tokenize",
        handler="tokenize:create",
        scope=Scope.INFERENCE,
        transport=Transport.JSON,
        request="tokenize:TokenizeRequest",
        response="tokenize:TokenizeResponse",
    ),
    Endpoint(
        name="tokenizer_info",
        method="GET",
        path="/tokenizer_info",
        handler="tokenize:describe",
        scope=Scope.INFERENCE,
        response="tokenize:TokenizerInfo",
    ),
    Endpoint(
        name="version",
        method="GET",
        path="/version",
        handler="about:version",
        scope=Scope.KEY,
        response="status:Version",
    ),
)
OPEN_PATHS = frozenset(e.path for e in ENDPOINTS if e.scope is Scope.OPEN)
"""What is answered without a key."""
METERED_PATHS = frozenset((e.method, e.path) for e in ENDPOINTS if e.is_metered)
"""Method and path of what counts against a key's limits."""
QUEUED_PATHS = frozenset((e.method, e.path) for e in ENDPOINTS if e.queued)
"""Method and path of what is refused, before it is read, while the engine's queue is full."""
_ERRORS = {endpoint.path: endpoint.errors for endpoint in ENDPOINTS}


def error_shape(path: str) -> ErrorShape:
    """How errors of requests to `path` are written, also if they never reach their route."""
    return _ERRORS.get(path, OPENAI)


def endpoint_named(name: str) -> Endpoint:
    """The row `name`."""
    return next(endpoint for endpoint in ENDPOINTS if endpoint.name == name)
