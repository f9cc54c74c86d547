"""The packages of the extra are imported only if gRPC is used, and named if they are missing."""

import subprocess
import sys

import pytest

from pagemill.server.rpc.extra import import_grpc


@pytest.mark.parametrize("name", ["grpc.aio", "google.protobuf.wrappers_pb2"])
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"--grpc-port.*pip install 'pagemill\[grpc\]'"):
        import_grpc()


def test_the_server_imports_them_when_they_are_used() -> None:
    command = "import pagemill.server.http_process, sys; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert not {"grpc", "google.protobuf"} & set(result.stdout.split())
