"""The endpoints there are. A new one is a module here and a row."""

from __future__ import annotations

from dataclasses import replace

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.error_shapes import ANTHROPIC, COHERE, OPENAI, ErrorShape

_GENERATE = (Task.GENERATE,)
_CLASSIFY = (Task.CLASSIFY,)
_POOLING = tuple(task for task in Task if task.pools)
_SCORE = (Task.CLASSIFY, Task.EMBED, Task.TOKEN_EMBED)


def _conversation(
    name: str, method: str, path: str, handler: str, request: str, response: str
) -> Endpoint:
    """A route of `/v1/conversations`."""
    return Endpoint(
        name=name,
        method=method,
        path=f"/v1/conversations{path}",
        handler=f"conversations:{handler}",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.PATH_AND_JSON if method == "POST" else Transport.PATH,
        request=f"conversations:{request}",
        response=f"conversations:{response}",
    )


def _speech(name: str, handler: str, request: str) -> Endpoint:
    """A route of models that transcribe."""
    return Endpoint(
        name=name,
        method="POST",
        path=f"/v1/audio/{name}",
        handler=f"speech:{handler}",
        scope=Scope.INFERENCE,
        tasks=(Task.TRANSCRIBE,),
        transport=Transport.AUDIO_FORM,
        request=f"transcription:{request}",
        response="transcription:ANSWER",
        event="transcription:SpeechChunk",
        queued=True,
        statuses=(422,),
    )


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


def _renders(module: str, path: str, request: str, errors: ErrorShape = OPENAI) -> Endpoint:
    """What makes a request of `/inference/v1/generate` of one of `path`."""
    return Endpoint(
        name=f"{module}_render",
        method="POST",
        path=f"{path}/render",
        handler=f"{module}:render",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request=request,
        response="generate:GenerateRequest",
        errors=errors,
    )


def _cohere_chat(name: str, path: str) -> Endpoint:
    """The route of Cohere's chats, at one of its paths."""
    return Endpoint(
        name=name,
        method="POST",
        path=path,
        handler="cohere_chat:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="cohere_chat:CohereChatRequest",
        response="cohere_chat:CohereChatResponse",
        event="cohere_chat:StreamEvent",
        errors=COHERE,
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
        name="chat_completions_batch",
        method="POST",
        path="/v1/chat/completions/batch",
        handler="chat_completions:create_batch",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="chat_batch:BatchChatRequest",
        response="chat:ChatResponse",
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
    _renders("chat_completions", "/v1/chat/completions", "chat:ChatRequest"),
    _pools(
        "classify", "/classify", _CLASSIFY, "classify:create", "classification", "Classification"
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
    replace(
        _renders("completions", "/v1/completions", "completion:CompletionRequest"),
        response="generate:RENDERED",
    ),
    _cohere_chat("cohere_chat", "/v2/chat"),
    _cohere_chat("cohere_chat_prefixed", "/cohere/v2/chat"),
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
    _conversation(
        "conversation", "GET", "/{conversation_id}", "retrieve", "ConversationName", "Conversation"
    ),
    _conversation("conversation_create", "POST", "", "create", "CreateRequest", "Conversation"),
    _conversation(
        "conversation_delete",
        "DELETE",
        "/{conversation_id}",
        "delete",
        "ConversationName",
        "DeletedConversation",
    ),
    _conversation(
        "conversation_item",
        "GET",
        "/{conversation_id}/items/{item_id}",
        "retrieve_item",
        "ItemName",
        "Item",
    ),
    _conversation(
        "conversation_item_delete",
        "DELETE",
        "/{conversation_id}/items/{item_id}",
        "delete_item",
        "ItemName",
        "Conversation",
    ),
    _conversation(
        "conversation_items",
        "GET",
        "/{conversation_id}/items",
        "list_items",
        "ItemsRequest",
        "ItemPage",
    ),
    _conversation(
        "conversation_items_add",
        "POST",
        "/{conversation_id}/items",
        "add_items",
        "AddItemsRequest",
        "ItemPage",
    ),
    _conversation(
        "conversation_update",
        "POST",
        "/{conversation_id}",
        "update",
        "UpdateRequest",
        "Conversation",
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
        name="generative_scoring",
        method="POST",
        path="/generative_scoring",
        handler="generative_scoring:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="generative_score:GenerativeScoreRequest",
        response="generative_score:GenerativeScoreResponse",
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
    _renders("messages", "/v1/messages", "messages:MessagesRequest", ANTHROPIC),
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
    replace(
        _pools("pooling", "/pooling", _POOLING, "pooling:create", "pooling", "Pooling"),
        response="pooling:POOLED",
    ),
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
    _renders("responses", "/v1/responses", "responses:ResponsesRequest"),
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
    _speech("transcriptions", "transcribe", "TranscriptionRequest"),
    _speech("translations", "translate", "TranslationRequest"),
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
