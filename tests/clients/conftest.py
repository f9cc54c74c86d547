"""One live server for all tests of a target, and how clients reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server; after the last test it must be idle."""
    if not SMOLLM2:
        pytest.skip(SMOLLM2_REASON)
    folder = tmp_path_factory.mktemp("server")
    options = ("--max-model-len", "2048", "--batch-dir", str(folder / "batches"))
    with serve(SMOLLM2, folder, options) as running:
        yield running
        running.wait_until_idle()


@pytest.fixture(scope="session")
def openai_url(server: ServerProcess) -> str:
    """The base URL for clients of OpenAI's API."""
    return f"{server.base_url}/v1"


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all tests: some libraries keep connections for the whole process."""
    with asyncio.Runner() as runner:
        yield runner
