"""An API key, by file and by environment, with the `openai` client."""

from __future__ import annotations

from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)


@pytest.mark.parametrize(
    ("options", "environment"),
    [(["--api-key-file", "KEYS"], {}), ([], {"PAGEMILL_API_KEY": "other,sesame"})],
)
def test_key(tmp_path: Path, options: list[str], environment: dict[str, str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("other\nsesame\n")
    options = [str(keys) if option == "KEYS" else option for option in options]
    with serve(SMOLLM2, tmp_path, options, environment=environment) as server:
        for path in ("/v1/models", "/metrics", "/version", "/openapi.json", "/nope"):
            got = httpx.get(server.base_url + path, timeout=60)
            assert got.status_code == 401
            assert set(got.json()["error"]) == {"message", "type", "param", "code"}
        for path in ("/health", "/ping", "/ready"):
            assert httpx.get(server.base_url + path, timeout=60).status_code == 200
        url = f"{server.base_url}/v1"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
        got = httpx.get(f"{url}/models", headers={"x-api-key": "sesame"}, timeout=60)
        assert got.status_code == 200
        right = openai.OpenAI(base_url=url, api_key="sesame", max_retries=0)
        got = right.completions.create(model=NAME, prompt="Hi", max_tokens=2)
        assert got.usage is not None and got.usage.completion_tokens > 0
        assert "sesame" not in server.log.read_text()
