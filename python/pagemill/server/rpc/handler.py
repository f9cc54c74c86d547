"""How gRPC calls what answers: with messages as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import grpc

Context = Any
"""A `grpc.aio.ServicerContext` whose messages are bytes."""


def headers_of(context: Context) -> list[tuple[bytes, bytes]]:
    """The metadata of a call, as headers of HTTP are."""
    sent: Sequence[tuple[str, str | bytes]] = context.invocation_metadata() or ()
    return [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in sent
    ]


def bytes_handler(answer: Any) -> Any:
    """A handler that reads and writes messages itself, as bytes. Calls of one message each way do
    not differ on the wire."""
    return cast(Any, grpc.stream_stream_rpc_method_handler)(answer)
