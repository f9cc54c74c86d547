"""Messages of pagemill.proto and of the health service, and what fields they hold.

All of them have one field, with the number 1. In the wire format they do not differ from the
wrappers that protobuf brings, which is why there is no generated code here.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from pagemill.server.errors import bad_request, invalid_body
from pagemill.server.protocol.decode import decode_object
from pagemill.server.rpc.table import Method

_LONGEST_TIMEOUT_S = 86400.0
_SHORTEST_TIMEOUT_S = 0.001


def json_message(payload: bytes) -> bytes:
    """A `Response` with JSON."""
    return StringValue(value=payload.decode()).SerializeToString()


def number_message(number: int) -> bytes:
    """A message whose field is a number or a value of an enum."""
    return UInt32Value(value=number).SerializeToString()


def request_fields(message: bytes, method: Method, remaining_s: float | None) -> dict[str, Any]:
    """The fields of a `Request`: those of its JSON, and what the call itself says.

    Args:
        message: the request.
        method: that was called.
        remaining_s: time until the call's deadline; None: it has none.

    Raises:
        ApiError: 400 for a message that is no request, or one that says something else.
    """
    try:
        text = StringValue.FromString(message).value
    except DecodeError:
        raise invalid_body("The message is not a pagemill.v1.Request.") from None
    fields = decode_object(text.encode()) if text else {}
    if method.streams is not None:
        if fields.get("stream") not in (None, method.streams):
            raise bad_request(
                "`stream` does not fit the call: leave it out, and call the method whose name"
                " begins with Stream for a stream.",
                "stream",
            )
        fields["stream"] = method.streams
    if remaining_s is not None and _has_timeout(method):
        remaining_s = min(max(remaining_s, _SHORTEST_TIMEOUT_S), _LONGEST_TIMEOUT_S)
        own = fields.get("timeout")
        if own is None or (type(own) in (int, float) and own > remaining_s):
            fields["timeout"] = remaining_s
    return fields


def _has_timeout(method: Method) -> bool:
    body = method.endpoint.request_type()
    return body is not None and "timeout" in body.kind.__struct_fields__
