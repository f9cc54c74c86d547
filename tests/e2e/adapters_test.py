"""Adapters over HTTP: named as models, loaded by the operator; also with two front ends, and with
two engines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.adapters.smollm2_adapter import RANK, write_adapter
from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve, wait_until_ready

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)


class Served(NamedTuple):
    server: ServerProcess
    operator: httpx.Client
    folder: Path

    def ask(self, model: str, status: int = 200, **fields: Any) -> Any:
        body = {"model": model, "prompt": "The capital of France", "max_tokens": 12, **fields}
        url = f"{self.server.base_url}/v1/completions"
        response = httpx.post(url, json={"temperature": 0, **body}, timeout=60)
        assert response.status_code == status, response.text
        return response.json()

    def text(self, model: str) -> str:
        answer = self.ask(model)
        assert answer["model"] == model
        return answer["choices"][0]["text"]

    def operate(self, name: str, status: int = 200, **body: Any) -> Any:
        response = self.operator.post(f"/v1/{name}", json=body)
        assert response.status_code == status, response.text
        return response.json()


@pytest.fixture(
    name="served", scope="module", params=["", "--api-server-count=2", "--data-parallel-size=2"]
)
def _served(request: pytest.FixtureRequest) -> Iterator[Served]:
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nothing, loud = write_adapter(folder / "nothing", 0), write_adapter(folder / "loud", 1)
        options = [
            *("--max-model-len=512", f"--admin-address={folder}/admin"),
            *(f"--lora-modules=nothing={nothing}", f"--lora-modules=loud={loud}"),
            f"--lora-folder={folder}",
        ]
        with serve(SMOLLM2, folder, [*options, *filter(None, [request.param])]) as running:
            transport = httpx.HTTPTransport(uds=f"{folder}/admin")
            with httpx.Client(
                transport=transport, base_url="http://operator", timeout=60
            ) as client:
                wait_until_ready(running.process, client, running.log)
                yield Served(running, client, folder)
            assert running.stop() == 0


def test_each_name_has_its_answer(served: Served) -> None:
    base = served.text("test-model")
    assert served.text("nothing") == base
    assert served.text("loud") != base
    listed = httpx.get(f"{served.server.base_url}/v1/models", timeout=60).json()["data"]
    assert [(card["id"], card["parent"]) for card in listed] == [
        ("test-model", None),
        ("nothing", "test-model"),
        ("loud", "test-model"),
    ]
    card = httpx.get(f"{served.server.base_url}/v1/models/loud", timeout=60).json()
    assert card["root"] == str(served.folder / "loud")


def test_names_that_are_not_there(served: Served) -> None:
    error = served.ask("other", 404)["error"]
    assert error["param"] == "model" and "`other` does not exist" in error["message"]
    assert httpx.get(f"{served.server.base_url}/v1/models/other", timeout=60).status_code == 404
    served.ask("x" * 300, 404)


def test_a_folder_is_loaded_when_it_is_named(served: Served) -> None:
    write_adapter(served.folder / "late", 1)
    assert served.text("late") == served.text("loud")
    (served.folder / "broken").mkdir()
    (served.folder / "broken" / "adapter_config.json").write_text("{}")
    assert "cannot be used" in served.ask("broken", 400)["error"]["message"]


def test_metrics_count_adapters(served: Served) -> None:
    served.text("loud")
    text = httpx.get(f"{served.server.base_url}/metrics", timeout=60).text
    loads = next(line for line in text.splitlines() if "adapter_loads_total{" in line)
    assert float(loads.rpartition(" ")[2]) >= 2
    assert 'lora_requests_info{max_lora="8"' in text


def test_loading_replacing_and_unloading(served: Served) -> None:
    load, path = "load_lora_adapter", str(served.folder / "nothing")
    other = str(write_adapter(served.folder / "other", 1, seed=1))
    assert served.operate(load, lora_name="new", lora_path=path)["rank"] == RANK
    assert served.text("new") == served.text("test-model")
    served.operate(load, 400, lora_name="new", lora_path=other)
    served.operate(load, lora_name="new", lora_path=other, load_inplace=True)
    assert served.text("new") not in (served.text("test-model"), served.text("loud"))
    assert served.operate("unload_lora_adapter", lora_name="new")["name"] == "new"
    served.ask("new", 404)
    served.operate("unload_lora_adapter", 404, lora_name="new")
    served.operate(load, 400, lora_name="test-model", lora_path=path)
    refusal = served.operate(load, 400, lora_name="bad", lora_path=str(served.folder))
    assert "adapter_config.json" in refusal["error"]["message"]
    # Not where clients are.
    url = f"{served.server.base_url}/v1/{load}"
    assert (
        httpx.post(url, json={"lora_name": "a", "lora_path": path}, timeout=60).status_code == 404
    )
