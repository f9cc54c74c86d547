"""Handlers, and what calls them, know no HTTP framework."""

from __future__ import annotations

import subprocess
import sys

_IMPORTS = (
    "import sys\n"
    "from pagemill.server import batch, open_model\n"
    "from pagemill.server.endpoints.table import ENDPOINTS\n"
    "for row in ENDPOINTS:\n"
    "    row.load(), row.request_type(), row.response_type(), row.event_type()\n"
    "print(*sys.modules)"
)


def test_handlers_import_no_http() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "pagemill.server.endpoints.chat_completions" in loaded
    assert not loaded & {"fastapi", "pydantic", "starlette", "uvicorn"}
