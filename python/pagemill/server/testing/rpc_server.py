"""The gRPC listener over the fake server, and a client of it, for tests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import uvloop
from google.protobuf.wrappers_pb2 import StringValue

from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.rpc.listener import RpcListener
from pagemill.server.rpc.table import SERVICE
from pagemill.server.testing.fake_server import FakeServer, fake_server

Metadata = Sequence[tuple[str, str]]


def request(fields: Mapping[str, Any] | str) -> bytes:
    """A `Request` with `fields`, or with the text itself."""
    text = fields if isinstance(fields, str) else json.dumps(fields)
    return StringValue(value=text).SerializeToString()


def answer(message: bytes) -> Any:
    """The JSON of a `Response`."""
    return json.loads(StringValue.FromString(message).value)


@dataclass(frozen=True)
class RpcServer:
    """A listener, and a channel to it."""

    fake: FakeServer
    listener: RpcListener
    channel: Any
    """A `grpc.aio.Channel`; messages are bytes."""

    async def call(
        self, name: str, fields: Mapping[str, Any] | str = "", metadata: Metadata = (), **how: Any
    ) -> Any:
        """The answer of a call that is not a stream."""
        method = self.channel.unary_unary(f"/{SERVICE}/{name}")
        return answer(await method(request(fields), metadata=tuple(metadata), **how))

    def stream(self, name: str, fields: Mapping[str, Any], metadata: Metadata = ()) -> Any:
        """A call that is a stream; its messages are bytes."""
        method = self.channel.unary_stream(f"/{SERVICE}/{name}")
        return method(request(fields), metadata=tuple(metadata))

    async def refusal(
        self, name: str, fields: Mapping[str, Any] | str = "", metadata: Metadata = (), **how: Any
    ) -> tuple[grpc.StatusCode, str, dict[str, str]]:
        """Status, sentence and trailers of a call that must fail."""
        try:
            found = await self.call(name, fields, metadata, **how)
        except grpc.aio.AioRpcError as error:
            trailers = {key: str(value) for key, value in error.trailing_metadata()}
            return error.code(), error.details() or "", trailers
        raise AssertionError(f"{name} answered {found}")

    async def health(self) -> bytes:
        """The answer of `grpc.health.v1.Health/Check`."""
        return await self.channel.unary_unary("/grpc.health.v1.Health/Check")(b"")


@contextlib.asynccontextmanager
async def rpc_server(
    *args: Any, keys: Sequence[ApiKey] = (), listeners: Sequence[Any] = (), **options: Any
) -> AsyncGenerator[RpcServer]:
    """A listener on a free port; the arguments are those of `fake_server`."""
    async with fake_server(*args, **options) as fake:
        listener = RpcListener(fake.state, KeyRing(keys), listeners)
        await listener.start()
        try:
            async with grpc.aio.insecure_channel(listener.address) as channel:
                yield RpcServer(fake, listener, channel)
        finally:
            await listener.stop(0)


def run_with(body: Callable[[RpcServer], Awaitable[None]], *args: Any, **options: Any) -> None:
    """Runs `body` with a server; see `rpc_server`."""

    async def main() -> None:
        async with rpc_server(*args, **options) as server:
            await body(server)

    uvloop.run(main())
