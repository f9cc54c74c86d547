"""Descriptors of the services of this server, as protobuf's tools read them.

They are built from tables, since there is no generated code here: that of pagemill.proto from
`table.METHODS`, those of health and reflection as gRPC defines them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool

from pagemill.server.rpc.table import METHODS, SERVICE

REFLECTION_PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
"""Equal except for the name; clients try one after the other."""
_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_KINDS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
}

# The fields of each message: number, kind, name. A kind that is none of `_KINDS` is a message of
# the same file. "repeated" and "oneof" stand in front of the kind.
_Fields = Mapping[str, Sequence[tuple[int, str, str]]]
_OWN: _Fields = {name: [(1, "string", "json")] for name in ("Request", "Response")}
_REFLECTION: _Fields = {
    "ServerReflectionRequest": [
        (1, "string", "host"),
        (3, "oneof string", "file_by_filename"),
        (4, "oneof string", "file_containing_symbol"),
        (5, "oneof ExtensionRequest", "file_containing_extension"),
        (6, "oneof string", "all_extension_numbers_of_type"),
        (7, "oneof string", "list_services"),
    ],
    "ExtensionRequest": [(1, "string", "containing_type"), (2, "int32", "extension_number")],
    "ServerReflectionResponse": [
        (1, "string", "valid_host"),
        (2, "ServerReflectionRequest", "original_request"),
        (4, "oneof FileDescriptorResponse", "file_descriptor_response"),
        (5, "oneof ExtensionNumberResponse", "all_extension_numbers_response"),
        (6, "oneof ListServiceResponse", "list_services_response"),
        (7, "oneof ErrorResponse", "error_response"),
    ],
    "FileDescriptorResponse": [(1, "repeated bytes", "file_descriptor_proto")],
    "ExtensionNumberResponse": [
        (1, "string", "base_type_name"),
        (2, "repeated int32", "extension_number"),
    ],
    "ListServiceResponse": [(1, "repeated ServiceResponse", "service")],
    "ServiceResponse": [(1, "string", "name")],
    "ErrorResponse": [(1, "int32", "error_code"), (2, "string", "error_message")],
}
_ONEOFS = {
    "ServerReflectionRequest": "message_request",
    "ServerReflectionResponse": "message_response",
}


def descriptors() -> DescriptorPool:
    """All files, each of which imports no other."""
    pool: Any = DescriptorPool()
    for file in (_own(), _health(), *map(_reflection, REFLECTION_PACKAGES)):
        pool.Add(file)
    return pool


def service_names() -> list[str]:
    """All services, sorted."""
    reflection = (f"{package}.ServerReflection" for package in REFLECTION_PACKAGES)
    return sorted([SERVICE, "grpc.health.v1.Health", *reflection])


def _own() -> FileDescriptorProto:
    package, _, name = SERVICE.rpartition(".")
    methods = [
        _method(each.name, f"{package}.Request", f"{package}.Response", answers=bool(each.streams))
        for each in METHODS
    ]
    return _file("pagemill.proto", package, _OWN, name, methods)


def _health() -> FileDescriptorProto:
    package = "grpc.health.v1"
    methods = [
        _method(
            name,
            f"{package}.HealthCheckRequest",
            f"{package}.HealthCheckResponse",
            answers=name == "Watch",
        )
        for name in ("Check", "Watch")
    ]
    fields: _Fields = {"HealthCheckRequest": [(1, "string", "service")], "HealthCheckResponse": []}
    file = _file("grpc/health/v1/health.proto", package, fields, "Health", methods)
    response = file.message_type[1]
    statuses = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(_STATUSES):
        statuses.value.add(name=name, number=number)
    response.field.add(
        name="status",
        number=1,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
        type=FieldDescriptorProto.TYPE_ENUM,
        type_name=f".{package}.HealthCheckResponse.ServingStatus",
    )
    return file


def _reflection(package: str) -> FileDescriptorProto:
    method = _method(
        "ServerReflectionInfo",
        f"{package}.ServerReflectionRequest",
        f"{package}.ServerReflectionResponse",
        asks=True,
        answers=True,
    )
    path = f"{package.replace('.', '/')}/reflection.proto"
    return _file(path, package, _REFLECTION, "ServerReflection", [method])


def _file(
    name: str,
    package: str,
    messages: _Fields,
    service: str,
    methods: Sequence[MethodDescriptorProto],
) -> FileDescriptorProto:
    return FileDescriptorProto(
        name=name,
        package=package,
        syntax="proto3",
        message_type=[_message(package, each, fields) for each, fields in messages.items()],
        service=[ServiceDescriptorProto(name=service, method=methods)],
    )


def _message(package: str, name: str, fields: Sequence[tuple[int, str, str]]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    if name in _ONEOFS:
        message.oneof_decl.add(name=_ONEOFS[name])
    for number, kind, field_name in fields:
        how, _, kind = kind.rpartition(" ")
        field = message.field.add(
            name=field_name,
            number=number,
            label=FieldDescriptorProto.LABEL_REPEATED
            if how == "repeated"
            else FieldDescriptorProto.LABEL_OPTIONAL,
            type=_KINDS.get(kind, FieldDescriptorProto.TYPE_MESSAGE),
        )
        if kind not in _KINDS:
            field.type_name = f".{package}.{kind}"
        if how == "oneof":
            field.oneof_index = 0
    return message


def _method(
    name: str, request: str, response: str, *, asks: bool = False, answers: bool = False
) -> MethodDescriptorProto:
    """`asks`, `answers`: with a stream of messages."""
    method = MethodDescriptorProto(name=name, input_type=f".{request}", output_type=f".{response}")
    if asks:
        method.client_streaming = True
    if answers:
        method.server_streaming = True
    return method
