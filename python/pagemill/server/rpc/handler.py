"""How gRPC calls what answers: with messages as bytes."""

from __future__ import annotations

from typing import Any, cast

import grpc

Context = Any
"""A `grpc.aio.ServicerContext` whose messages are bytes."""


def bytes_handler(answer: Any) -> Any:
    """A handler that reads and writes messages itself, as bytes. Calls of one message each way do
    not differ on the wire."""
    return cast(Any, grpc.stream_stream_rpc_method_handler)(answer)
