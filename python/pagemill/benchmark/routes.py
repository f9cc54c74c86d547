"""The routes that `bench serve` can put load on: what is sent, and what events say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pagemill.benchmark.prompts import Request

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SentFields:
    """Fields of every request of a load. `temperature` None leaves it to the server, as most
    clients do; without `ignore_eos` an output may be shorter than its request's."""

    model: str
    temperature: float | None
    ignore_eos: bool


class Route(Protocol):
    """One route: its requests, and its events if it streams."""

    takes_token_ids: bool
    streams: bool
    """False for a route that answers by one JSON object, which counts as an event."""

    def body(self, request: Request, fields: SentFields) -> dict[str, Any]:
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

    takes_token_ids = True

    def body(self, request: Request, fields: SentFields) -> dict[str, Any]:
        return self._fields(request, fields) | {"prompt": request.prompt}

    def has_output(self, event: Event) -> bool:
        return bool(event.get("choices"))


class ChatCompletions(_Generation):
    """`POST /v1/chat/completions`: a message of the user."""

    takes_token_ids = False

    def body(self, request: Request, fields: SentFields) -> dict[str, Any]:
        messages = [{"role": "user", "content": request.prompt}]
        return self._fields(request, fields) | {"messages": messages}

    def has_output(self, event: Event) -> bool:
        """False for the role that begins an answer, and for the end of one."""
        choices = event.get("choices")
        if not choices:
            return False
        return any(value for name, value in choices[0]["delta"].items() if name != "role")


class Responses:
    """`POST /v1/responses`: a text that is answered, and not stored."""

    takes_token_ids = False
    streams = True

    def body(self, request: Request, fields: SentFields) -> dict[str, Any]:
        body = {
            "model": fields.model,
            "input": request.prompt,
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


class Embeddings:
    """`POST /v1/embeddings`."""

    takes_token_ids = True
    streams = False

    def body(self, request: Request, fields: SentFields) -> dict[str, Any]:
        return {"model": fields.model, "input": request.prompt}

    def has_output(self, event: Event) -> bool:
        return bool(event.get("data"))

    def usage(self, event: Event) -> tuple[int, int] | None:
        return event["usage"]["prompt_tokens"], 0

    def is_last(self, event: Event) -> bool:
        return True


def _sampling(fields: SentFields) -> dict[str, Any]:
    stated: dict[str, Any] = {"ignore_eos": True} if fields.ignore_eos else {}
    return stated if fields.temperature is None else stated | {"temperature": fields.temperature}


COMPLETIONS = "/v1/completions"
ROUTES: Mapping[str, Route] = {
    COMPLETIONS: Completions(),
    "/v1/chat/completions": ChatCompletions(),
    "/v1/responses": Responses(),
    "/v1/embeddings": Embeddings(),
}
"""By path."""
