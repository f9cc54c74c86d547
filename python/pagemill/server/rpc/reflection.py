"""`grpc.reflection.v1.ServerReflection`: tools such as `grpcurl` ask it for the calls there are.

It needs a valid key, like any call that reads messages of its clients, and nothing of its scopes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pagemill.server.access.key_ring import KeyRing
from pagemill.server.errors import ApiError, no_key
from pagemill.server.rpc.descriptors import REFLECTION_PACKAGES, descriptors, service_names
from pagemill.server.rpc.handler import Context, bytes_handler, headers_of
from pagemill.server.rpc.status import code_of, details_of
from pagemill.server.state import ServerState

MAX_STREAMS = 64
"""At a time. They take at most a quarter of all calls."""
MAX_MESSAGES = 256
"""Of a stream."""
MAX_MESSAGE_BYTES = 4096
MAX_STREAM_S = 30.0
"""Clients begin another one by themselves. A shutdown may have to wait so long."""


class ReflectionService(grpc.GenericRpcHandler):
    """Answers each message of a stream with names of services, or the descriptor of a file."""

    def __init__(self, state: ServerState, ring: KeyRing) -> None:
        self._ring = ring
        self._num_streams = 0
        self._most_streams = max(1, min(MAX_STREAMS, state.config.connections.max_connections // 4))
        self._pool: Any = descriptors()
        self._handlers = {
            f"/{package}.ServerReflection/ServerReflectionInfo": bytes_handler(
                partial(self._info, package)
            )
            for package in REFLECTION_PACKAGES
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call."""
        return self._handlers.get(handler_call_details.method)

    async def _info(self, package: str, messages: object, context: Context) -> None:
        del messages  # the context has them
        try:
            self._check(context)
            self._num_streams += 1
            try:
                async with asyncio.timeout(MAX_STREAM_S):
                    await self._answer(package, context)
            finally:
                self._num_streams -= 1
        except TimeoutError:
            reason = f"A stream of reflection ends after {MAX_STREAM_S:g} s: begin another one."
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, reason)
        except ApiError as error:
            await context.abort(code_of(error), details_of(error))

    def _check(self, context: Context) -> None:
        """Refuses calls without a key, and too many."""
        if self._ring.keys and self._ring.owner(headers_of(context)) is None:
            raise no_key()
        if self._num_streams >= self._most_streams:
            raise ApiError(429, f"{self._most_streams} streams of reflection are open; try again.")

    async def _answer(self, package: str, context: Context) -> None:
        for _ in range(MAX_MESSAGES):
            message = await context.read()
            if not isinstance(message, bytes):  # the end of the call
                return
            await context.write(self._reply(package, message))
        raise ApiError(429, f"A stream of reflection has {MAX_MESSAGES} messages: begin another.")

    def _reply(self, package: str, message: bytes) -> bytes:
        if len(message) > MAX_MESSAGE_BYTES:
            raise ApiError(
                400,
                f"The message has more than {MAX_MESSAGE_BYTES} bytes: name one symbol or file.",
            )
        try:
            request: Any = self._class(package, "ServerReflectionRequest").FromString(message)
        except DecodeError:
            raise ApiError(400, "The message is not a ServerReflectionRequest.") from None
        reply: Any = self._class(package, "ServerReflectionResponse")()
        reply.valid_host = request.host
        reply.original_request.CopyFrom(request)
        try:
            match request.WhichOneof("message_request"):
                case "list_services":
                    for name in service_names():
                        reply.list_services_response.service.add(name=name)
                case "file_by_filename":
                    _add(reply, self._pool.FindFileByName(request.file_by_filename))
                case "file_containing_symbol":
                    _add(reply, self._file_of(request.file_containing_symbol))
                case "all_extension_numbers_of_type":
                    name = request.all_extension_numbers_of_type
                    self._pool.FindMessageTypeByName(name)
                    reply.all_extension_numbers_response.base_type_name = name
                case _:  # no file has extensions
                    raise KeyError
        except KeyError:
            reply.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
            reply.error_response.error_message = "There is no such symbol, file or extension."
        return reply.SerializeToString()

    def _file_of(self, symbol: str) -> Any:
        """The file that has `symbol`; raises KeyError. protobuf itself does not find methods."""
        owner, _, name = symbol.rpartition(".")
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service = self._pool.FindServiceByName(owner)
            return service.methods_by_name[name].containing_service.file

    def _class(self, package: str, name: str) -> Any:
        return GetMessageClass(self._pool.FindMessageTypeByName(f"{package}.{name}"))


def _add(reply: Any, file: Any) -> None:
    described = FileDescriptorProto()
    file.CopyToProto(described)
    reply.file_descriptor_response.file_descriptor_proto.append(described.SerializeToString())
