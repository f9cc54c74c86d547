"""Two servers: one computes prompts, the other one generates from their KV, which comes by shared
memory or by TCP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.engine.reserved_port import reserved_port

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

OPTIONS = (
    *("--max-model-len", "512", "--kv-cache-memory-bytes", "24MiB"),
    *("--kv-shared-memory-bytes", "16MiB"),
)
PROMPT = "The history of the lighthouse on the cape begins with a storm. " * 12
SEND = {"do_remote_decode": True, "do_remote_prefill": False, "remote_host": None}


@pytest.fixture(params=["shared memory", "tcp"])
def servers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """One for prompts, one that generates."""
    (tmp_path / "prefill").mkdir()
    (tmp_path / "decode").mkdir()
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    secret = ("--kv-transfer-secret-file", str(tmp_path / "secret"))
    remote = request.param == "tcp"
    with reserved_port() as port:
        listens = ("--kv-transfer-listen", f"127.0.0.1:{port}", *secret) if remote else ()
        loads = ("--kv-transfer-peers", f"localhost:{port}", *secret) if remote else ()
        with (
            serve(SMOLLM2, tmp_path / "prefill", (*OPTIONS, *listens)) as prefill,
            serve(SMOLLM2, tmp_path / "decode", (*OPTIONS, *loads)) as decode,
        ):
            yield prefill, decode


def complete(server: ServerProcess, max_tokens: int, **fields: Any) -> dict[str, Any]:
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, **fields}
    response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def test_tokens_are_those_of_one_engine(servers: tuple[ServerProcess, ServerProcess]) -> None:
    prefill, decode = servers
    params = complete(prefill, 1, kv_transfer_params=SEND)["kv_transfer_params"]
    assert params["do_remote_prefill"] == "true"
    both = complete(decode, 24, kv_transfer_params=params)
    assert decode.metric("external_prefix_cache_hits_total") >= 128
    cached = both["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < both["usage"]["prompt_tokens"] - cached <= 16
    assert "kv_transfer_params" not in both
    alone = complete(decode, 24, cache_salt="computed again")
    assert alone["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert both["choices"][0]["text"] == alone["choices"][0]["text"]
    prefill.wait_until_idle()  # holds nothing any more

    # The first server is killed before it sends what the second one asks for.
    other = {"prompt": PROMPT[7:]}
    params = complete(prefill, 1, kv_transfer_params=SEND)["kv_transfer_params"]
    prefill.process.kill()
    prefill.process.wait()
    text = complete(decode, 24, kv_transfer_params=params, **other)["choices"][0]["text"]
    assert decode.metric("kv_failed_loads_total") == 1
    assert text == complete(decode, 24, cache_salt="again", **other)["choices"][0]["text"]
    assert decode.stop() == 0
