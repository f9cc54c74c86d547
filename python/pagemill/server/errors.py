"""Refusals and failures of requests, and which HTTP status each has."""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.engine.outputs import EngineError, ended_by_operator

# cc/base/status.h says the status beside each code. A request that its own client cancelled is
# never answered; 499 is for the metrics.
STATUS_OF_CODE: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "DEADLINE_EXCEEDED": 504,
    "UNAVAILABLE": 503,
    "UNIMPLEMENTED": 400,  # not 501: clients retry every 5xx, and the answer would not change
    "FAILED_PRECONDITION": 409,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
}
TYPE_OF_STATUS: Mapping[int, str] = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    409: "ConflictError",
    413: "PayloadTooLargeError",
    422: "UnprocessableEntityError",
    426: "UpgradeRequiredError",
    429: "RateLimitError",
    431: "HeadersTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
    507: "InsufficientStorageError",
}
RETRY_AFTER_S: Mapping[int, int] = {429: 1, 503: 5}


class ApiError(Exception):
    """A refusal with its HTTP status.

    `type_name` None is the status's usual type. `retry_after_s` is for statuses that have a
    Retry-After header; 0 is the status's usual one. `reason` is a code of Anthropic's API for a
    refusal that its clients recover from by themselves.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        type_name: str | None = None,
        retry_after_s: int = 0,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message if message.endswith((".", "?", "!")) else f"{message}."
        self.param = param
        self.type_name = type_name or TYPE_OF_STATUS.get(status, "Error")
        self.retry_after_s = retry_after_s or RETRY_AFTER_S.get(status, 0)
        self.is_by_engine = False
        """Of a 429: the engine's queue is full, for all clients alike."""
        self.reason = reason


def renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """`error` for a client whose API has other names of fields: `names` has those, by the names
    that `error` may speak of."""
    message = error.message
    for name, name_there in names.items():
        message = message.replace(f"`{name}`", f"`{name_there}`")
    param = names.get(error.param or "", error.param)
    found = ApiError(
        error.status, message, param, error.type_name, error.retry_after_s, error.reason
    )
    found.is_by_engine = error.is_by_engine
    return found


def no_key() -> ApiError:
    """The 401 of a request without a valid key."""
    return ApiError(
        401,
        "A valid API key is required: send it as `Authorization: Bearer <key>` or as"
        " `X-API-Key: <key>`.",
    )


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400 about a field's value."""
    return ApiError(400, message, param)


def invalid_body(message: str, param: str | None = None) -> ApiError:
    """A 400 about the body's shape: the type is the reference system's for validation errors."""
    return ApiError(400, message, param, "Bad Request")


def not_implemented(message: str, param: str, reason: str = "") -> ApiError:
    """A 400: a valid request that this version cannot serve."""
    return ApiError(400, message, param, reason=reason)


def binary_answer() -> ApiError:
    """The refusal of bytes by what carries JSON only."""
    return bad_request(
        "`encoding_format` must be float, base64 or sparse here: answers are JSON.",
        "encoding_format",
    )


def aborted() -> ApiError:
    """The operator has ended a request that has no use for a part of its output."""
    return from_engine(ended_by_operator())


def from_engine(error: EngineError) -> ApiError:
    """The engine's refusal or failure as the client sees it."""
    status = STATUS_OF_CODE.get(error.code, 500)
    refusal = ApiError(status, error.message, error.param, retry_after_s=error.retry_after_s)
    refusal.is_by_engine = True
    return refusal
