"""Routes of models that generate: text, tokens, transcripts."""

from __future__ import annotations

from dataclasses import replace

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.error_shapes import ANTHROPIC, COHERE, OPENAI, ErrorShape

_GENERATE = (Task.GENERATE,)


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


def _derenders(module: str, path: str, kind: str) -> Endpoint:
    """What makes an answer of `path` of answers of `/inference/v1/generate`."""
    return Endpoint(
        name=f"{module}_derender",
        method="POST",
        path=f"{path}/derender",
        handler=f"{module}:derender",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request=f"derender:{kind}DerenderRequest",
        response=f"derender:{kind.upper()}",
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


GENERATING_ENDPOINTS = (
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
    _derenders("chat_completions", "/v1/chat/completions", "Chat"),
    _renders("chat_completions", "/v1/chat/completions", "chat:ChatRequest"),
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
    _derenders("completions", "/v1/completions", "Completion"),
    replace(
        _renders("completions", "/v1/completions", "completion:CompletionRequest"),
        response="generate:RENDERED",
    ),
    _cohere_chat("cohere_chat", "/v2/chat"),
    _cohere_chat("cohere_chat_prefixed", "/cohere/v2/chat"),
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
        name="structured_decisions",
        method="POST",
        path="/v1/systemone",
        handler="structured_decisions:create",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="structured_decision:StructuredDecisionRequest",
        response="structured_decision:StructuredDecisionResponse",
        queued=True,
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
        name="realtime",
        method="GET",
        path="/v1/realtime",
        handler="realtime:connect",
        scope=Scope.INFERENCE,
        tasks=(Task.GENERATE, Task.TRANSCRIBE),
        transport=Transport.WEBSOCKET,
        request="realtime:ConnectRequest",
        statuses=(426,),
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
        name="responses_input_tokens",
        method="POST",
        path="/v1/responses/input_tokens",
        handler="responses:count_tokens",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.JSON,
        request="responses:ResponsesRequest",
        response="responses:InputTokens",
    ),
    _renders("responses", "/v1/responses", "responses:ResponsesRequest"),
    _speech("transcriptions", "transcribe", "TranscriptionRequest"),
    _speech("translations", "translate", "TranslationRequest"),
)
