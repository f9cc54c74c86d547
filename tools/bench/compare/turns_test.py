"""Turns of fake peers, and their report."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from pagemill.benchmark.load_generator import RequestTimes
from pagemill.benchmark.machine_limits import MachineLimits
from pagemill.engine.model_work import ModelWork, Multiplication

from tools.bench.compare import report, turns
from tools.bench.compare.process import PeerProcess
from tools.bench.compare.turns import Contestant, Table, take_turns
from tools.bench.compare.workloads import WORKLOADS


class FakeProcess:
    """Takes `first_s` for the first token, and a tenth of it for each other; records events."""

    ready_s = 1.5
    pid = 0

    def __init__(self, name: str, first_s: float, events: list[str]) -> None:
        self._name, self._first_s, self._events = name, first_s, events
        self.prompts: list[list[list[int]]] = []

    def run(self, prompts: list[list[int]], output_len: int, _: int) -> list[RequestTimes]:
        self._events.append(f"run {self._name}")
        self.prompts.append(prompts)
        gaps = [self._first_s / 10] * (output_len - 1)
        last = self._first_s + sum(gaps)
        return [RequestTimes(0, self._first_s, last, gaps, output_len) for _ in prompts]

    def pause(self) -> None:
        self._events.append(f"pause {self._name}")

    def resume(self) -> None:
        self._events.append(f"resume {self._name}")

    def stop(self) -> None:
        self._events.append(f"stop {self._name}")

    def resident_bytes(self) -> int:
        return 2_000_000_000


def _limits() -> MachineLimits:
    """Reading weights takes a second per token; multiplication is 100 times faster."""
    work = ModelWork((Multiplication("k", 1000, 1000, True),))
    return MachineLimits(work, 1, 1000.0, {"k": 1e5}, {"k": ("k", "f32", "L1")})


def _load(others: Iterable[float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    measured = iter(others)

    class Load:
        def __init__(self, _: object) -> None: ...

        def other_cores(self) -> float | None:
            return next(measured, 0.0)

    monkeypatch.setattr(turns, "MachineLoad", Load)


def _compete(names: list[str], rounds: int) -> tuple[Table, list[str], dict[str, FakeProcess]]:
    events: list[str] = []
    processes = {name: FakeProcess(name, 0.5 * (at + 1), events) for at, name in enumerate(names)}

    def contestant(name: str) -> Contestant:
        start = lambda: cast(PeerProcess, processes[name])  # noqa: E731
        return Contestant(name, start, lambda work: not work.server_only)

    table = Table("bf16")
    work = [WORKLOADS["single"], WORKLOADS["http"]]
    list(take_turns(table, [contestant(name) for name in names], work, rounds, _limits))
    return table, events, processes


def test_peers_take_turns_while_the_others_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    _load([], monkeypatch)
    table, events, processes = _compete(["pagemill", "b"], rounds=2)
    turn = lambda name: [f"resume {name}", f"run {name}", f"pause {name}"]  # noqa: E731
    assert events == [
        *["pause pagemill", "pause b"],
        *(turn("b") + turn("pagemill")),  # the warm-up
        *(turn("pagemill") + turn("b")),
        *(turn("b") + turn("pagemill")),
        *["stop b", "stop pagemill"],
    ]
    # The same prompts for both, others in each round; the warm-up does not count.
    assert processes["pagemill"].prompts == processes["b"].prompts
    first, second, third = processes["b"].prompts
    assert first != second != third
    assert len(table.of("b", "single")) == 2
    assert table.of("b", "http") == []
    assert table.median("b", "single") == pytest.approx(10)
    assert table.median("b", "single", "first_token_ms") == pytest.approx(1000)
    assert table.limit("single") == pytest.approx(1)
    assert table.resident_bytes["b"] == 2_000_000_000


def test_a_disturbed_run_is_repeated_with_new_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    _load([9.0, 0.5, 0.05], monkeypatch)
    table, _, processes = _compete(["pagemill"], rounds=1)
    (run,) = table.runs
    assert run.other_cores == 0.05
    assert not run.disturbed
    warm_up, thrown_away, kept = processes["pagemill"].prompts
    assert warm_up != thrown_away != kept


@pytest.mark.parametrize("others", [0.11, None])
def test_a_run_that_stays_disturbed_is_marked(
    others: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _load([others] * 4, monkeypatch)
    table, _, processes = _compete(["pagemill"], rounds=1)
    assert [run.disturbed for run in table.runs] == [True]
    assert len(processes["pagemill"].prompts) == 4


def test_prompts_have_their_prefix_in_common_within_a_round() -> None:
    work = WORKLOADS["shared"]
    prompts = work.prompts(0)
    assert len(prompts) == 32
    assert all(len(prompt) == 544 for prompt in prompts)
    assert len({tuple(prompt[:512]) for prompt in prompts}) == 1
    assert len({tuple(prompt[512:]) for prompt in prompts}) == 32
    assert work.prompts(0) == prompts
    assert work.prompts(1)[0][:512] != prompts[0][:512]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("single", 127 / 12.0),
        ("prefill", 1024 / 3.0),
        ("batch", 32 * 128 / 15.0),
        ("shared", 32 * 64 / 15.0),
        ("http", 64 / 15.0),
    ],
)
def test_what_is_read_off_the_clock(name: str, value: float) -> None:
    work = WORKLOADS[name]
    times = [RequestTimes(sent=1, first=4, last=16) for _ in range(work.requests)]
    assert work.value(work, times) == pytest.approx(value)


def _comparison(table: Table) -> report.Comparison:
    return report.Comparison("m", "cpu", "avx2", 2, 1, "2001-02-03", [table])


def test_the_report_compares_with_the_limit_and_the_best_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _load([], monkeypatch)
    table, _, _ = _compete(["pagemill", "b", "c"], rounds=1)
    paths = report.write(_comparison(table), tmp_path / "new" / "stem")
    data: dict[str, Any] = json.loads(paths[0].read_text())
    assert [run["peer"] for run in data["tables"][0]["runs"]] == ["pagemill", "b", "c"]
    text = paths[1].read_text()
    assert "| pagemill | 1.5 | 2.00 | 20.0 | 500 |" in text
    assert "| b | 1.5 | 2.00 | 10.0 | 1,000 |" in text
    assert "| the machine's limit |  |  | 1.00 |  |" in text
    assert "| pagemill / limit |  |  | 2000% |  |" in text
    assert "| pagemill / best other |  |  | 2.00 |  |" in text
    assert "Not to be published" not in text
    assert all(path.stat().st_size for path in paths)


def test_our_other_mode_is_compared_with_the_best_other_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _load([], monkeypatch)
    table, _, _ = _compete(["pagemill", "b", "pagemill-int8"], rounds=1)
    text = list(report.markdown(_comparison(table)))
    assert "| pagemill / best other |  |  | 2.00 |  |" in text
    assert "| pagemill-int8 / best other |  |  | 0.67 |  |" in text


def test_a_disturbed_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _load([1.0] * 99, monkeypatch)
    table, _, _ = _compete(["pagemill", "b"], rounds=1)
    text = " ".join(report.markdown(_comparison(table)))
    assert "Not to be published: other processes disturbed 2 of 2 runs" in text
