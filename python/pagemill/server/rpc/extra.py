"""The packages of the extra `pagemill[grpc]`, which are imported only if they are used."""

from __future__ import annotations

import importlib

from pagemill.config.env import set_default


def import_grpc() -> None:
    """Imports what the other modules of this package need.

    Raises:
        ImportError: a package is missing.
    """
    # gRPC's own log has what clients do wrong, without bound, on the standard error stream.
    set_default("GRPC_VERBOSITY", "NONE")
    try:
        for name in ("grpc.aio", "google.protobuf.wrappers_pb2"):
            importlib.import_module(name)
    except ImportError:
        raise ImportError(
            "--grpc-port needs grpcio and protobuf: pip install 'pagemill[grpc]'"
        ) from None
