"""The packages of the extra `pagemill[grpc]`, which are imported only if they are used."""

from __future__ import annotations

import importlib
import os


def import_grpc() -> None:
    """Imports what the other modules of this package need.

    Raises:
        ImportError: a package is missing.
    """
    # It would log what clients do wrong, without bound; the program's own log has what matters.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        for name in ("grpc.aio", "google.protobuf.wrappers_pb2"):
            importlib.import_module(name)
    except ImportError:
        raise ImportError(
            "--grpc-port needs grpcio and protobuf: pip install 'pagemill[grpc]'"
        ) from None
