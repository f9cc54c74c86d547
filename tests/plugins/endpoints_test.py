"""Endpoints and metrics of an installed package, on servers with one process and with several."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.config import ConfigError
from pagemill.server.endpoints.plugins import plugin_endpoints
from pagemill.server.records.metrics_plugins import check_metrics_plugins, open_metrics_plugins
from pagemill.server.records.record import RequestRecord
from prometheus_client import CollectorRegistry

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve
from tests.plugins.installed_package import install

ENTRIES = """\
[pagemill.endpoints]
alpaca = alpaca.routes:ROWS
elsewhere = alpaca.routes:SHOUT
form = alpaca.wrong:FORM
lower = alpaca.wrong:LOWER
gone = alpaca.wrong:GONE
number = alpaca.wrong:NUMBER
open = alpaca.wrong:OPEN
parameters = alpaca.wrong:PARAMETERS
taken = alpaca.wrong:TAKEN
twice = alpaca.wrong:TWICE

[pagemill.metrics]
alpaca = alpaca.metrics:open_metrics
double = alpaca.metrics:open_double
raises = alpaca.metrics:open_raising
"""
ROUTES = """\
import msgspec

from pagemill.server.access.caller import Scope
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.protocol.decode import FieldRules


class ShoutRequest(msgspec.Struct):
    text: str
    max_tokens: int = 4


class Shout(msgspec.Struct):
    text: str


RULES = FieldRules({}, frozenset())


async def shout(server, body, caller):
    '''Continues a text in capitals.'''
    fields = {"prompt": body.text, "max_tokens": body.max_tokens, "temperature": 0}
    answer = await invoke(server, endpoint_named("completions"), fields, caller)
    return Shout(answer.choices[0].text.upper())


async def herd(server, fields, caller):
    '''Says who asks.'''
    return Shout(f"{fields['animal']} {caller.key_id}")


SHOUT = Endpoint(
    name="alpaca_shout",
    method="POST",
    path="/plugins/alpaca/shout",
    handler="alpaca.routes:shout",
    scope=Scope.INFERENCE,
    transport=Transport.JSON,
    request="alpaca.routes:ShoutRequest",
    response="alpaca.routes:Shout",
    queued=True,
)
HERD = Endpoint(
    name="alpaca_herd",
    method="GET",
    path="/plugins/alpaca/herd/{animal}",
    handler="alpaca.routes:herd",
    scope=Scope.METRICS,
    response="alpaca.routes:Shout",
)
ROWS = (SHOUT, HERD)
"""
WRONG = """\
from dataclasses import replace

from alpaca.routes import HERD, SHOUT
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Transport

FORM = replace(SHOUT, path="/plugins/form/x", transport=Transport.FORM)
LOWER = replace(SHOUT, path="/plugins/lower/x", method="post")
GONE = replace(SHOUT, path="/plugins/gone/x", handler="alpaca.nowhere:shout")
NUMBER = 5
OPEN = replace(HERD, path="/plugins/open/x", scope=Scope.OPEN)
PARAMETERS = replace(SHOUT, path="/plugins/parameters/{x}")
TAKEN = replace(SHOUT, path="/plugins/taken/x", name="completions")
TWICE = [replace(SHOUT, path="/plugins/twice/x", name=name) for name in ("one", "two")]
"""
METRICS = """\
from prometheus_client import Counter


def open_metrics(registry):
    requests = Counter("alpaca_requests", "Requests by key.", ["key"], registry=registry)
    tokens = Counter("alpaca_tokens", "Tokens.", registry=registry)

    def take(record):
        if record.route.startswith("/plugins/"):
            requests.labels(record.key_id).inc()
            tokens.inc(record.work.completion_tokens)

    return take


def open_double(registry):
    open_metrics(registry)
    return open_metrics(registry)


def open_raising(registry):
    return lambda record: record.nothing
"""
KEYS = """\
web: {key: k1}
slow: {key: k2, requests_per_minute: 2}
probe: {key: k3, scopes: [metrics]}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    files = {"__init__": "", "routes": ROUTES, "wrong": WRONG, "metrics": METRICS}
    install(folder, ENTRIES, {f"alpaca/{name}.py": text for name, text in files.items()})
    return folder


@pytest.fixture(name="importable")
def _importable(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(site)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "alpaca"]:
        del sys.modules[name]


@pytest.fixture(name="server", scope="module", params=["", "--api-server-count=2"])
def _server(
    request: pytest.FixtureRequest, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    keys = folder / "keys.yaml"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    options = ["--max-model-len=256", f"--api-key-file={keys}", "--endpoint-plugin=alpaca"]
    options += [
        "--metrics-plugin=alpaca",
        "--metrics-plugin=raises",
        *filter(None, [request.param]),
    ]
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    with serve(SMOLLM2, folder, options, environment={"PYTHONPATH": path}) as running:
        yield running


def shout(server: ServerProcess, key: str, **fields: Any) -> httpx.Response:
    headers = {"X-API-Key": key} if key else {}
    body = {"text": "The capital of France is", **fields}
    return httpx.post(
        f"{server.base_url}/plugins/alpaca/shout", json=body, headers=headers, timeout=60
    )


def get(server: ServerProcess, path: str, key: str) -> httpx.Response:
    return httpx.get(f"{server.base_url}{path}", headers={"X-API-Key": key}, timeout=60)


@pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
def test_its_endpoints_are_served_like_ours(server: ServerProcess) -> None:
    answer = shout(server, "k1")
    assert answer.status_code == 200, answer.text
    assert "PARIS" in answer.json()["text"] and answer.headers["x-request-id"]
    assert get(server, "/plugins/alpaca/herd/llama", "k3").json() == {"text": "llama probe"}
    for status, found in (
        (401, shout(server, "")),
        (403, shout(server, "k3")),
        (400, shout(server, "k1", max_tokens="many")),
        (400, shout(server, "k1", max_tokens=0)),
        (404, get(server, "/plugins/alpaca/other", "k1")),
        (404, get(server, "/plugins/elsewhere/shout", "k1")),
        (405, get(server, "/plugins/alpaca/shout", "k1")),
    ):
        assert found.status_code == status and found.json()["error"]["message"]
    paths = get(server, "/openapi.json", "k1").json()["paths"]
    assert paths["/plugins/alpaca/shout"]["post"]["summary"] == "Continues a text in capitals."
    assert "/plugins/alpaca/herd/{animal}" in paths and "/v1/completions" in paths
    limited = [shout(server, "k2", max_tokens=1) for _ in range(4)]
    assert [each.status_code for each in limited] == [200, 200, 429, 429]
    assert limited[0].headers["x-ratelimit-limit-requests"] == "2"


@pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
def test_its_metrics_count_the_requests_of_all_processes(server: ServerProcess) -> None:
    def total() -> float:
        lines = get(server, "/metrics", "k3").text.splitlines()
        found = [line for line in lines if line.startswith('alpaca_requests_total{key="web"}')]
        return float(found[0].split()[-1]) if found else 0.0

    before = total()
    for _ in range(8):  # on connections of their own, which the system distributes
        assert shout(server, "k1").status_code == 200
    deadline = time.monotonic() + 60
    while total() < before + 8:
        assert time.monotonic() < deadline, total()
        time.sleep(0.05)
    assert total() == before + 8
    assert "alpaca_tokens_total" in get(server, "/metrics", "k3").text
    assert "--metrics-plugin raises failed, and gets no more records" in server.log.read_text()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("other", "no installed package has the plugin 'other' in the group pagemill.endpoints"),
        ("elsewhere", "/plugins/alpaca/shout does not begin with /plugins/elsewhere/"),
        ("form", "has the transport FORM, not JSON or PATH"),
        ("gone", "/plugins/gone/x cannot be imported: .*alpaca.nowhere"),
        ("lower", "/plugins/lower/x has the method 'post'"),
        ("number", "it has a int in place of an Endpoint"),
        ("open", "/plugins/open/x is open"),
        ("parameters", "has parameters, and takes its fields from JSON"),
        ("taken", "two endpoints with the name 'completions'"),
        ("twice", "two endpoints for POST /plugins/twice/x"),
    ],
)
def test_rows_that_a_plugin_may_not_have(importable: None, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"--endpoint-plugin:? .*{sentence}"):
        plugin_endpoints([name])
    assert [row.name for row in plugin_endpoints(["alpaca"])] == ["alpaca_shout", "alpaca_herd"]
    with pytest.raises(ConfigError, match="two endpoints"):
        plugin_endpoints(["alpaca", "alpaca"])


def test_metrics_that_cannot_be_opened(importable: None) -> None:
    with pytest.raises(ConfigError, match="--metrics-plugin: no installed package has .*'other'"):
        check_metrics_plugins(["other"])
    check_metrics_plugins(["alpaca", "double"])
    registry = CollectorRegistry()
    (take,) = open_metrics_plugins(["alpaca"], registry)
    take(RequestRecord("POST", "/x", route="/plugins/x", key_id="me"))
    assert registry.get_sample_value("alpaca_requests_total", {"key": "me"}) == 1.0
    with pytest.raises(ConfigError, match="--metrics-plugin double: .*Duplicated timeseries"):
        open_metrics_plugins(["double"], CollectorRegistry())
