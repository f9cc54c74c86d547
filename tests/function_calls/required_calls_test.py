"""With `tool_choice` "required", each answer is well-formed calls of functions that exist, with
arguments that their schemas allow; and a model that knows functions finds the right ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.e2e.server_process import NAME, ServerProcess, serve
from tools.bench.function_calls.asking import Outcome, ask_all
from tools.bench.function_calls.cases import CATEGORIES, read_cases

MODEL = os.environ.get("PAGEMILL_TEST_FUNCTION_CALLS_GGUF", "")
CASES = int(os.environ.get("PAGEMILL_TEST_CASES", "4"))
pytestmark = pytest.mark.skipif(not MODEL, reason="no model is named that calls functions")
# A bound below what Qwen2.5-Coder 0.5B reaches (docs/http.md); it never makes two calls at once.
LEAST_RIGHT = {"simple_python": 0.72, "multiple": 0.67, "parallel": 0.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serve(MODEL, tmp_path_factory.mktemp("server"), ["--max-model-len=4096"]) as running:
        yield running


async def outcomes(server: ServerProcess, category: str) -> list[Outcome]:
    cases = read_cases(category)[:CASES]
    asked = ask_all(
        server.base_url, NAME, cases, tool_choice="required", max_tokens=512, concurrency=16
    )
    return [each async for each in asked]


@pytest.mark.parametrize("category", CATEGORIES)
def test_required_calls_are_well_formed(server: ServerProcess, category: str) -> None:
    found = asyncio.run(outcomes(server, category))
    faults = [(each.case.name, each.faults) for each in found if each.faults and not each.is_cut]
    assert not faults
    assert all(each.has_calls for each in found)
    if CASES >= 100:  # of a model that was chosen for it
        right = sum(each.is_right for each in found) / len(found)
        print(f"{category}: {right:.1%} of {len(found)} right")
        assert right >= LEAST_RIGHT[category]
        assert sum(each.is_cut for each in found) <= 0.01 * len(found)
