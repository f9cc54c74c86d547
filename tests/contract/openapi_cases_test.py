"""Cases made of the OpenAPI document, right ones and wrong ones: no answer is a failure of the
server, and each is one that the document describes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from pagemill.inputs.task import Task
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.e2e.server_process import SMOLLM2, SMOLLM2_REASON, ServerProcess, serve
from tests.families.encoders import make
from tests.families.word_tokenizer import save_tokenizer

CASES = int(os.environ.get("PAGEMILL_TEST_CASES", "300"))
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@pytest.fixture(scope="module", params=["generate", "classify", "token_embed"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server of a model for each task that has routes of its own."""
    # Short outputs, and many at a time: most cases do not say how many tokens they want.
    folder = tmp_path_factory.mktemp("server")
    options = ["--max-model-len=64", "--max-num-seqs=64", f"--batch-dir={folder}/batches"]
    model = SMOLLM2
    if request.param == "generate" and not SMOLLM2:
        pytest.skip(SMOLLM2_REASON)
    if request.param != "generate":
        folder = tmp_path_factory.mktemp("model")
        make("bert", Task.CLASSIFY, folder, labels=1)
        save_tokenizer(folder)
        model = str(folder)
        options.append(f"--task={request.param}")
    with serve(model, tmp_path_factory.mktemp("log"), options) as running:
        yield running


def late(case: Any, response: Any) -> bool:
    """The case has a `timeout`, which passed: a 504 then, as for a gateway's client."""
    return response.status_code == 504 and isinstance(case.body, dict) and "timeout" in case.body


def check_operation(operation: Any, mode: GenerationMode, count: int) -> int:
    """Sends `count` cases of an operation, the same ones each time; returns how many."""
    sent = 0

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        nonlocal sent
        sent += 1
        response = case.call(timeout=120)
        checks = [
            each for each in CHECKS if each is not not_a_server_error or not late(case, response)
        ]
        case.validate_response(response, checks=checks)

    with contextlib.suppress(Unsatisfiable):  # nothing that is sent can be wrong
        check()
    return sent


def test_every_operation(server: ServerProcess) -> None:
    schema = schemathesis.openapi.from_url(f"{server.base_url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    num_bodies = sum(len(operation.body) > 0 for operation in operations)
    sent = 0
    for operation in operations:
        # Without a body there is little to say: a path's parameter, or nothing.
        count = CASES // (len(MODES) * num_bodies) if len(operation.body) > 0 else 5
        for mode in MODES:
            sent += check_operation(operation, mode, count)
    print(f"{sent} cases of {len(operations)} operations")
    assert httpx.get(f"{server.base_url}/health").status_code == 200
