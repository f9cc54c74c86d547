"""Items run in order, within limits, and their results outlive what goes wrong."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tools.gpu.items import Item
from tools.gpu.results import Result, Results
from tools.gpu.running import Runner


@pytest.fixture(name="results")
def _results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results.json")


def _item(name: str, program: str, limit_s: int = 20, **fields: object) -> Item:
    return Item(name, (sys.executable, "-c", program), limit_s, **fields)  # pyright: ignore[reportArgumentType]


def _run(results: Results, items: list[Item], tmp_path: Path, seconds: float = 50) -> None:
    Runner(results, dict(os.environ), tmp_path, time.monotonic() + seconds, jobs=2).run(items)


def _status(results: Results, name: str) -> str:
    found = results.get(name)
    assert found is not None
    return found.status


def test_each_outcome(results: Results, tmp_path: Path):
    said = "print('RESULT ' + '{\"what\": \"x\"}', flush=True);"
    items = [
        _item("a/passes", said + "print('for people')"),
        _item("a/fails", said + "import sys; print('why'); sys.exit(1)", alone=True),
        _item("a/refused", "import sys; sys.exit(3)"),
        _item("a/breaks", "import os; os.kill(os.getpid(), 11)"),
        _item("a/hangs", said + "import time; time.sleep(60)", limit_s=5),
        _item("b/needs", "", needs=("a/passes",)),
        _item("b/needs-more", "", needs=("a/passes", "a/fails"), alone=True),
    ]
    _run(results, items, tmp_path)
    again = Results(tmp_path / "results.json")
    statuses = {item.name: _status(again, item.name) for item in items}
    assert statuses == {
        "a/passes": "passed",
        "a/fails": "failed",
        "a/refused": "refused",
        "a/breaks": "failed",
        "a/hangs": "ended",
        "b/needs": "passed",
        "b/needs-more": "left out",
    }
    assert len(again.records("x", "a/")) == 3
    outputs = {item.name: (again.get(item.name) or Result()).output for item in items}
    assert outputs["a/passes"] == "" and outputs["a/fails"] == "why\n"
    assert "signal 11" in outputs["a/breaks"] and "a/fails" in outputs["b/needs-more"]


def test_a_failure_is_diagnosed(results: Results, tmp_path: Path):
    diagnosis = (sys.executable, "-c", "print('line 7')")
    items = [
        _item("a/fails", "raise SystemExit(1)", diagnosis=diagnosis),
        _item("a/passes", "", diagnosis=diagnosis),
        _item("a/breaks", "raise SystemExit(1)", diagnosis=("no-such-program",)),
    ]
    _run(results, items, tmp_path)
    outputs = [(results.get(item.name) or Result()).output for item in items]
    assert outputs == ["line 7\n", "", ""]


def test_what_has_a_result_does_not_run_again(results: Results, tmp_path: Path):
    results.put("a/done", Result("failed"))
    results.put("a/cut", Result("running"))
    _run(results, [_item("a/done", ""), _item("a/cut", "")], tmp_path)
    assert (_status(results, "a/done"), _status(results, "a/cut")) == ("failed", "passed")


def test_nothing_begins_without_time(results: Results, tmp_path: Path):
    _run(results, [_item("a/late", "")], tmp_path, seconds=1)
    assert _status(results, "a/late") == "left out"


def test_results_are_saved_while_an_item_runs(results: Results, tmp_path: Path):
    """What a killed check leaves has the records of the item that ran."""
    path = tmp_path / "results.json"
    program = (
        'print(\'RESULT {"what": "x"}\', flush=True)\n'
        "import json, time\n"
        "def saved():\n"
        f"    return json.load(open({str(path)!r}))['items']['a/long']['records']\n"
        "deadline = time.monotonic() + 10\n"
        "while not saved() and time.monotonic() < deadline: time.sleep(0.01)\n"
        "assert saved()\n"
    )
    _run(results, [_item("a/long", program)], tmp_path)
    assert _status(results, "a/long") == "passed"
    assert json.loads(path.read_text())["items"]["a/long"]["records"] == [{"what": "x"}]
