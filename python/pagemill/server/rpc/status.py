"""Refusals and failures as gRPC statuses."""

from __future__ import annotations

from collections.abc import Mapping

from grpc import StatusCode

from pagemill.server.error_shapes import sentence
from pagemill.server.errors import RETRY_AFTER_S, ApiError

_CODE_OF_STATUS: Mapping[int, StatusCode] = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.FAILED_PRECONDITION,
    429: StatusCode.RESOURCE_EXHAUSTED,
    499: StatusCode.CANCELLED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
# Clients take 8 KiB of trailers by default, in which a byte that is not ASCII takes three.
_MAX_DETAILS_BYTES = 1500
_MAX_PARAM_CHARS = 200

Metadata = list[tuple[str, str]]


def code_of(error: ApiError) -> StatusCode:
    """The status that stands for the HTTP status of `error`."""
    return _CODE_OF_STATUS.get(error.status, StatusCode.INTERNAL)


def details_of(error: ApiError) -> str:
    """The sentence of `error`."""
    return sentence(error).encode()[:_MAX_DETAILS_BYTES].decode(errors="ignore")


def metadata_of(error: ApiError) -> Metadata:
    """What the error object of the HTTP API says beside the sentence, and when to try again.

    `grpc-retry-pushback-ms` is gRPC's own: clients with a policy for retries wait for so long.
    """
    metadata = [("error-type", error.type_name)]
    param = error.param
    if param and param.isascii() and param.isprintable():
        metadata.append(("error-param", param[:_MAX_PARAM_CHARS]))
    if error.status in RETRY_AFTER_S:
        metadata.append(("retry-after", str(error.retry_after_s)))
        metadata.append(("grpc-retry-pushback-ms", str(1000 * error.retry_after_s)))
    return metadata
