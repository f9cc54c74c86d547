"""Reflection over gRPC, as tools use it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from pagemill.config import ConnectionConfig
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.access.keys import ApiKey
from pagemill.server.rpc import reflection
from pagemill.server.rpc.descriptors import REFLECTION_PACKAGES, descriptors, service_names
from pagemill.server.testing.rpc_server import Metadata, RpcServer, run_with

KEYS = (ApiKey.of("sk-m", Caller("scraper", scopes=frozenset({Scope.METRICS}))),)
LIST = {"list_services": "*"}
POOL: Any = descriptors()


def message(name: str, package: str = REFLECTION_PACKAGES[0]) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(f"{package}.{name}"))


def begin(server: RpcServer, package: str = REFLECTION_PACKAGES[0], metadata: Metadata = ()) -> Any:
    method = server.channel.stream_stream(f"/{package}.ServerReflection/ServerReflectionInfo")
    return method(metadata=tuple(metadata))


class NoReplyError(Exception):
    """The server ended the call."""


async def asked(call: Any, package: str = REFLECTION_PACKAGES[0], **fields: Any) -> Any:
    """The reply to one message of a stream."""
    request = message("ServerReflectionRequest", package)(**fields)
    await call.write(request.SerializeToString())
    data = await call.read()
    if not isinstance(data, bytes):
        raise NoReplyError
    reply = message("ServerReflectionResponse", package).FromString(data)
    assert reply.original_request == request and reply.valid_host == request.host
    return reply


async def refused(call: Any) -> grpc.StatusCode:
    """The status of a call that must end."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        while await call.read() is not grpc.aio.EOF:
            pass
    return error.value.code()


def files(reply: Any) -> list[FileDescriptorProto]:
    sent = reply.file_descriptor_response.file_descriptor_proto
    return [FileDescriptorProto.FromString(each) for each in sent]


@pytest.mark.parametrize("package", REFLECTION_PACKAGES)
def test_services_and_their_files(package: str) -> None:
    async def check(server: RpcServer) -> None:
        call = begin(server, package)
        listed = await asked(call, package, host="here", list_services="*")
        names = [each.name for each in listed.list_services_response.service]
        assert names == service_names()
        for name in names:
            (file,) = files(await asked(call, package, file_containing_symbol=name))
            assert f"{file.package}.{file.service[0].name}" == name
            (again,) = files(await asked(call, package, file_by_filename=file.name))
            assert again == file
        (file,) = files(
            await asked(call, package, file_containing_symbol="pagemill.v1.Inference.Chat")
        )
        assert file.name == "pagemill.proto"
        none = await asked(call, package, all_extension_numbers_of_type="pagemill.v1.Request")
        assert not none.all_extension_numbers_response.extension_number
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    run_with(check)


def test_the_file_is_pagemill_proto(tmp_path: Path) -> None:
    from grpc_tools import protoc

    proto = Path(reflection.__file__).with_name("pagemill.proto")
    out = tmp_path / "set"
    assert protoc.main(["", f"-I{proto.parent}", f"--descriptor_set_out={out}", proto.name]) == 0
    (wanted,) = FileDescriptorSet.FromString(out.read_bytes()).file
    found = FileDescriptorProto()
    POOL.FindFileByName("pagemill.proto").CopyToProto(found)
    for file in (wanted, found):
        file.service[0].method.sort(key=lambda method: method.name)
        for each in file.message_type:
            each.field[0].ClearField("json_name")
    assert found == wanted


def test_what_is_not_there() -> None:
    async def check(server: RpcServer) -> None:
        call = begin(server)
        extension = {"containing_type": "pagemill.v1.Request", "extension_number": 2}
        for fields in (
            {"file_by_filename": "absent.proto"},
            {"file_containing_symbol": "pagemill.v1.Absent"},
            {"file_containing_symbol": "pagemill.v1.Inference.Absent"},
            {"file_containing_symbol": ""},
            {"all_extension_numbers_of_type": "absent"},
            {"file_containing_extension": extension},
            {},
        ):
            reply = await asked(call, **fields)
            assert reply.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0], fields

    run_with(check)


def test_it_needs_a_key_of_any_scope() -> None:
    async def check(server: RpcServer) -> None:
        assert await refused(begin(server)) is grpc.StatusCode.UNAUTHENTICATED
        await asked(begin(server, metadata=(("x-api-key", "sk-m"),)), **LIST)

    run_with(check, keys=KEYS)


def test_streams_are_bounded() -> None:
    async def code_of_another(server: RpcServer) -> grpc.StatusCode | None:
        """None: it is answered."""
        call = begin(server)
        try:
            await asked(call, **LIST)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, NoReplyError):
            return await call.code()
        call.cancel()
        return None

    async def check(server: RpcServer) -> None:
        first = begin(server)
        await asked(first, **LIST)
        assert await code_of_another(server) is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()
        async with asyncio.timeout(60):
            while await code_of_another(server) is not None:
                await asyncio.sleep(0.01)

    run_with(check, connections=ConnectionConfig(max_connections=4))


def test_messages_of_a_stream_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(server: RpcServer) -> None:
        call = begin(server)
        await asked(call, **LIST)
        await asked(call, **LIST)
        assert await refused(call) is grpc.StatusCode.RESOURCE_EXHAUSTED

    monkeypatch.setattr(reflection, "MAX_MESSAGES", 2)
    run_with(check)


def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(server: RpcServer) -> None:
        for data in (b"\x3a\xff\x7f", b"\x3a\x80\x20" + b"a" * 4096):
            call = begin(server)
            await call.write(data)
            assert await refused(call) is grpc.StatusCode.INVALID_ARGUMENT
        monkeypatch.setattr(reflection, "MAX_STREAM_S", 0.05)
        assert await refused(begin(server)) is grpc.StatusCode.DEADLINE_EXCEEDED

    run_with(check)
