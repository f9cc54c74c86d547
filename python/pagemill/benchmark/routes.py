"""The routes that `bench serve` can put load on: what is sent, and what events say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pagemill.benchmark.prompts import Request

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SentFields:
    """Fields of every request of a load. `temperature` None leaves it to the server, as most
    clients do; without `ignore_eos` an output may be shorter than its request's."""

    model: str
    temperature: float | None
    ignore_eos: bool


Body = dict[str, Any] | bytes
"""JSON, or the parts of a form with BOUNDARY."""
BOUNDARY = "pagemill-bench-7d0b1f5ae4c1"


Takes = Literal["token ids", "images", "documents", "sound"]
"""What requests have: token ids, or a text; a text, with images or not; a text with documents; a
sound alone."""


class Route(Protocol):
    """One route: its requests, and its events if it streams."""

    takes: Takes
    streams: bool
    """False for a route that answers by one JSON object, which counts as an event."""
    fixes_length: bool
    """True if an output has the tokens that its request states, unless the model ends it."""

    def body(self, request: Request, fields: SentFields) -> Body:
        """Returns the body of a request."""
        ...

    def has_output(self, event: Event) -> bool:
        """True for an event that brings output tokens."""
        ...

    def usage(self, event: Event) -> tuple[int, int] | None:
        """Returns the tokens of prompt and output if the event says them."""
        ...

    def is_last(self, event: Event) -> bool:
        """True if no event follows; others end with `[DONE]`."""
        ...


class _Generation:
    """What completions and chats have in common."""

    streams = True
    fixes_length = True

    def _fields(self, request: Request, fields: SentFields) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": fields.model,
            "max_tokens": request.output_len,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return body | _sampling(fields)

    def usage(self, event: Event) -> tuple[int, int] | None:
        usage = event.get("usage")
        return (usage.get("prompt_tokens", 0), usage["completion_tokens"]) if usage else None

    def is_last(self, event: Event) -> bool:
        return False


class Completions(_Generation):
    """`POST /v1/completions`."""

    takes: Takes = "token ids"

    def body(self, request: Request, fields: SentFields) -> Body:
        return self._fields(request, fields) | {"prompt": request.prompt}

    def has_output(self, event: Event) -> bool:
        return bool(event.get("choices"))


class ChatCompletions(_Generation):
    """`POST /v1/chat/completions`: a message of the user."""

    takes: Takes = "images"

    def body(self, request: Request, fields: SentFields) -> Body:
        content: Any = request.prompt
        if request.images:
            images = [{"type": "image_url", "image_url": {"url": url}} for url in request.images]
            content = [*images, {"type": "text", "text": request.prompt}]
        messages = [{"role": "user", "content": content}]
        return self._fields(request, fields) | {"messages": messages}

    def has_output(self, event: Event) -> bool:
        """False for the role that begins an answer, and for the end of one."""
        choices = event.get("choices")
        if not choices:
            return False
        return any(value for name, value in choices[0]["delta"].items() if name != "role")


class Responses:
    """`POST /v1/responses`: a text that is answered, and not stored."""

    takes: Takes = "images"
    streams = True
    fixes_length = True

    def body(self, request: Request, fields: SentFields) -> Body:
        content: Any = request.prompt
        if request.images:
            images = [{"type": "input_image", "image_url": url} for url in request.images]
            text = {"type": "input_text", "text": request.prompt}
            content = [{"role": "user", "content": [*images, text]}]
        body = {
            "model": fields.model,
            "input": content,
            "max_output_tokens": request.output_len,
            "stream": True,
            "store": False,
        }
        return body | _sampling(fields)

    def has_output(self, event: Event) -> bool:
        return str(event.get("type", "")).endswith(".delta")

    def usage(self, event: Event) -> tuple[int, int] | None:
        usage = event["response"].get("usage") if "response" in event else None
        return (usage["input_tokens"], usage["output_tokens"]) if usage else None

    def is_last(self, event: Event) -> bool:
        return event.get("type") in ("response.completed", "response.incomplete")


class _Pooling:
    """What routes of models that pool have in common."""

    streams = False
    fixes_length = False
    output: str
    """The field of an answer."""

    def has_output(self, event: Event) -> bool:
        return bool(event.get(self.output))

    def usage(self, event: Event) -> tuple[int, int] | None:
        return event["usage"]["prompt_tokens"], 0

    def is_last(self, event: Event) -> bool:
        return True


class Embeddings(_Pooling):
    """`POST /v1/embeddings`."""

    takes: Takes = "token ids"
    output = "data"

    def body(self, request: Request, fields: SentFields) -> Body:
        return {"model": fields.model, "input": request.prompt}


class Rerank(_Pooling):
    """`POST /v1/rerank`: documents for a query."""

    takes: Takes = "documents"
    output = "results"

    def body(self, request: Request, fields: SentFields) -> Body:
        documents = list(request.documents)
        return {"model": fields.model, "query": request.prompt, "documents": documents}


class Transcriptions:
    """`POST /v1/audio/transcriptions`: a form with a file."""

    takes: Takes = "sound"
    streams = True
    fixes_length = False

    def body(self, request: Request, fields: SentFields) -> Body:
        texts = {"model": fields.model, "stream": "true", "stream_include_usage": "true"}
        if fields.temperature is not None:
            texts["temperature"] = str(fields.temperature)
        head = "Content-Disposition: form-data; name="
        parts = [
            f'--{BOUNDARY}\r\n{head}"{name}"\r\n\r\n{text}\r\n'.encode()
            for name, text in texts.items()
        ]
        file = f'--{BOUNDARY}\r\n{head}"file"; filename="noise.wav"\r\n\r\n'.encode()
        return b"".join([*parts, file, request.sound, f"\r\n--{BOUNDARY}--\r\n".encode()])

    def has_output(self, event: Event) -> bool:
        choices = event.get("choices")
        return bool(choices and choices[0]["delta"].get("content"))

    def usage(self, event: Event) -> tuple[int, int] | None:
        usage = event.get("usage")
        return (usage.get("prompt_tokens", 0), usage["completion_tokens"]) if usage else None

    def is_last(self, event: Event) -> bool:
        return False


def _sampling(fields: SentFields) -> dict[str, Any]:
    stated: dict[str, Any] = {"ignore_eos": True} if fields.ignore_eos else {}
    return stated if fields.temperature is None else stated | {"temperature": fields.temperature}


COMPLETIONS = "/v1/completions"
ROUTES: Mapping[str, Route] = {
    COMPLETIONS: Completions(),
    "/v1/chat/completions": ChatCompletions(),
    "/v1/responses": Responses(),
    "/v1/embeddings": Embeddings(),
    "/v1/rerank": Rerank(),
    "/v1/audio/transcriptions": Transcriptions(),
}
"""By path."""
