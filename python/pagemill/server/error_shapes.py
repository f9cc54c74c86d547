"""The error objects of the APIs that this server speaks.

OpenAI's: {"error": {"message": str, "type": str, "param": str | null, "code": int}}
Anthropic's: {"type": "error", "error": {"type": str, "message": str}}, in some with `details`,
{"error_code": str}
Cohere's: {"message": str}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from pagemill.server.errors import ApiError

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorBody(msgspec.Struct):
    """The inner object."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorResponse(msgspec.Struct):
    """The outer object."""

    error: ErrorBody


class ErrorDetails(msgspec.Struct):
    """What clients of Anthropic's API act upon."""

    error_code: str


class CohereError(msgspec.Struct):
    """The error object of Cohere's API."""

    message: str


class AnthropicErrorBody(msgspec.Struct):
    """The inner object of Anthropic's API."""

    type: str
    message: str
    details: ErrorDetails | UnsetType = UNSET


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """The outer object of Anthropic's API, also as an event of a stream."""

    error: AnthropicErrorBody


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How one API writes errors, and streams that wait.

    `event_name` is the name of the event that ends a stream with an error; "" if the API's events
    have no names. `idle_event` is what a stream says while there is nothing to say.
    """

    kind: type[msgspec.Struct]
    written: Callable[[ApiError, str], msgspec.Struct]
    """(error, its message) -> a `kind`."""
    event_name: str
    idle_event: bytes

    def encoded(self, error: ApiError) -> bytes:
        """The error object as JSON."""
        return msgspec.json.encode(self.written(error, sentence(error)))


def sentence(error: ApiError) -> str:
    """The message of `error` for a client; memory addresses never leave the process."""
    return _ADDRESS.sub("", error.message)


def _openai(error: ApiError, message: str) -> ErrorResponse:
    return ErrorResponse(ErrorBody(message, error.type_name, error.param, error.status))


def _anthropic(error: ApiError, message: str) -> AnthropicError:
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(error.status, usual)
    details = ErrorDetails(error.reason) if error.reason else UNSET
    return AnthropicError(AnthropicErrorBody(kind, message, details))


def _cohere(error: ApiError, message: str) -> CohereError:
    del error
    return CohereError(message)


OPENAI = ErrorShape(ErrorResponse, _openai, "", b":\n\n")
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
COHERE = ErrorShape(CohereError, _cohere, "", b":\n\n")
ANTHROPIC = ErrorShape(AnthropicError, _anthropic, "error", _PING)
