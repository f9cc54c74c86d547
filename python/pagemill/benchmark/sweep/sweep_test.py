"""Sweeps: the grid, the results file, the runs on fake servers, and the table."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pagemill.benchmark.server_process import RunningServer, running_server
from pagemill.benchmark.sweep.grid import Grid, Run, read_grid
from pagemill.benchmark.sweep.measure import measure_missing
from pagemill.benchmark.sweep.results import Results
from pagemill.benchmark.sweep.summary import pareto_front, summarize, table
from pagemill.benchmark.testing.fake_serve import COMMAND, MAX_TOKENS, requests, starts
from pagemill.config import ConfigError

_MANY = list(range(1, 1002))


def _grid(tmp_path: Path, text: str | Mapping[str, Any], repeats: int = 1) -> Grid:
    path = tmp_path / "grid.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return read_grid(str(path), repeats)


def test_a_grid_is_the_product_of_its_values(tmp_path: Path) -> None:
    text = {
        "server": {"model": "m.gguf", "--max-num-seqs": [16, "1k"], "enable_prefix_caching": False},
        "load": {"request-rate": [1, "inf"]},
    }
    grid = _grid(tmp_path, text, 3)
    same = {"model": "m.gguf", "enable_prefix_caching": False}
    assert grid.servers == [same | {"max_num_seqs": 16}, same | {"max_num_seqs": 1000}]
    assert grid.loads == [{"request_rate": 1.0}, {"request_rate": "inf"}]
    assert grid.num_runs == 12
    runs = [run for server in grid.servers for run in grid.runs(server)]
    assert len({run.key for run in runs}) == 12
    # The prompts are those of the load and the repeat, whatever the server.
    assert len({run.seed for run in runs}) == 6
    nothing = _grid(tmp_path, "{}")
    assert (nothing.servers, nothing.loads) == ([{}], [{}])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"server": {"max-num-seq": 1}}', "server: unknown option.*did you mean 'max-num-seqs'"),
        ('{"load": {"--rate": 1}}', "load: unknown option '--rate'.*bench serve --help"),
        ('{"server": {"max-num-seqs": [16, 0]}}', "server: --max-num-seqs: 0 is out of range"),
        ('{"load": {"output-len": [1, "x"]}}', "load: --output-len"),
        ('{"load": {"output-len": []}}', "--output-len has an empty list"),
        ('{"load": {"output-len": [1000, "1k"]}}', "--output-len has '1k' twice"),
        ('{"server": {"port": 1}}', "server: 'port' cannot be chosen"),
        ('{"server": {"api-key": "k"}}', "server: 'api-key' cannot be chosen"),
        ('{"load": {"url": "x"}}', "load: 'url' cannot be chosen"),
        ('{"load": {"output-len": 1, "output_len": 2}}', "'output_len' is given twice"),
        ('{"load": {}, "load": {}}', "'load' is given twice"),
        ('{"loads": {}}', "'loads' is unknown"),
        ('{"load": [1]}', "'load' is not an object"),
        ('{"load": {"dataset": "no/such.jsonl"}}', "load: --dataset no/such.jsonl: No such file"),
        ("[]", "expected an object"),
        ('{\n"load": {,}}', "line 2 is not JSON"),
        ("[" * 10**5, "is not JSON"),
        (f'{{"load": {{"output-len": {_MANY}}}}}', "are 1,001 runs, more than 1,000"),
    ],
)
def test_bad_grids_are_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"grid\.json: .*{words}"):
        _grid(tmp_path, text)
    with pytest.raises(ConfigError, match="No such file"):
        read_grid(str(tmp_path / "nothing.json"), 1)


def test_lengths_of_a_data_set_are_left_to_the_server(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "five words of a prompt", "max_tokens": 4}))
    load = {"dataset": str(path), "max-request-len": 10}
    assert _grid(tmp_path, {"load": load}).num_runs == 1


def test_results_outlive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    runs = [Run({"max_num_seqs": 1}, {"request_rate": "inf"}, repeat) for repeat in range(3)]
    first = Results(str(path))
    first.add(runs[0], {"failed": 0})
    first.add(runs[1], {"failed": 1})
    whole = path.read_text()
    path.write_text(whole + '{"server": {"max_n')
    again = Results(str(path))
    assert [run in again for run in runs] == [True, True, False]
    assert again.of(iter(runs)) == [{"failed": 0}, {"failed": 1}]
    assert path.read_text() == whole
    again.add(runs[2], {"failed": 0})
    assert all(run in Results(str(path)) for run in runs)


@pytest.mark.parametrize(("text", "line"), [("{}\n", 1), ("\n", 1), ("important", 1)])
def test_another_file_is_not_appended_to(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"line {line} of .*notes.txt is not a result"):
        Results(str(path))
    assert path.read_text() == text


def _measure(grid: Grid, results: Results) -> tuple[list[str], int]:
    """What was noted, and how many runs were done or left out."""

    def start(options: Mapping[str, Any]) -> AbstractContextManager[RunningServer]:
        return running_server(options, COMMAND)

    notes: list[str] = []
    done: list[int] = []
    measure_missing(grid, results, start, api_key="", note=notes.append, on_run=done.append)
    return notes, sum(done)


def test_a_sweep_continues_where_it_was(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    server = {"cache-dir": str(cache), "max-num-seqs": [1, 2]}
    load = {"num-prompts": 2, "num-warmups": 0, "max-concurrency": 1, "output-len": [1, 3]}
    grid = _grid(tmp_path, {"server": server, "load": load}, 2)
    results = Results(str(tmp_path / "results.jsonl"))
    assert _measure(grid, results) == ([], 8)
    assert [flags[1] for flags in starts(cache)] == ["--max-num-seqs=1", "--max-num-seqs=2"]
    assert [each["max_tokens"] for each in requests(cache)] == [1, 1, 3, 3, 1, 1, 3, 3] * 2
    prompts = [str(each["prompt"]) for each in requests(cache)]
    # Nothing of a server's prompts was sent to it before; both servers got the same.
    assert len(set(prompts[:8])) == 8
    assert prompts[:8] == prompts[8:]

    server["max-num-seqs"] = [2, 4]
    grid = _grid(tmp_path, {"server": server, "load": load}, 2)
    again = Results(str(tmp_path / "results.jsonl"))
    assert _measure(grid, again) == ([], 8)
    assert [flags[1] for flags in starts(cache)[2:]] == ["--max-num-seqs=4"]
    combinations = summarize(grid, again)
    assert [each.runs for each in combinations] == [2] * 4
    assert all(each.medians["requests_per_s"] > 0 for each in combinations)


def test_servers_that_fail_are_left_out(tmp_path: Path) -> None:
    server = {"cache-dir": str(tmp_path), "model": ["broken", "fragile", "good"]}
    load = {"num-prompts": 1, "num-warmups": 0, "output-len": 2}
    grid = _grid(tmp_path, {"server": server, "load": load})
    results = Results(str(tmp_path / "results.jsonl"))
    notes, done = _measure(grid, results)
    assert done == 3
    assert "--model=broken" in notes[0] and "no such model" in notes[0]
    assert "--model=fragile" in notes[1] and "out of memory" in notes[1]
    combinations = summarize(grid, results)
    assert [each.runs for each in combinations] == [0, 0, 1]
    lines = table(combinations).splitlines()
    assert lines[0].split()[:3] == ["model", "runs", "failed"]
    assert lines[1].split() == ["broken", "0", "0", *"------"]
    assert lines[3].split()[:4] == ["*", "good", "1", "0"]


def test_runs_whose_requests_all_fail_are_left_out(tmp_path: Path) -> None:
    load = {"num-prompts": 1, "num-warmups": 0, "output-len": [MAX_TOKENS + 1, 2]}
    grid = _grid(tmp_path, {"server": {"cache-dir": str(tmp_path)}, "load": load})
    results = Results(str(tmp_path / "results.jsonl"))
    notes, done = _measure(grid, results)
    assert done == 2
    assert len(notes) == 1 and "--output-len=101" in notes[0] and "status 400" in notes[0]
    assert [each.runs for each in summarize(grid, results)] == [0, 1]


def test_medians_and_the_pareto_front(tmp_path: Path) -> None:
    grid = _grid(tmp_path, {"load": {"max-concurrency": [1, 2]}}, 3)
    results = Results(str(tmp_path / "results.jsonl"))
    for run in grid.runs({}):
        speed = run.load["max_concurrency"] * 10.0 + run.repeat
        times = {"p50": 5.0, "p99": 6.0}
        report = {"requests_per_s": 1.0, "output_tokens_per_s": speed, "failed": run.repeat}
        results.add(run, report | dict.fromkeys(("ttft_ms", "tpot_ms", "e2e_ms"), times))
    slow, fast = summarize(grid, results)
    assert (slow.medians["output_tokens_per_s"], fast.medians["output_tokens_per_s"]) == (11, 21)
    assert (slow.is_pareto, fast.is_pareto) == (False, True)
    assert fast.failed_requests == 3
    entry = fast.as_json()
    assert entry["load"] == {"max_concurrency": 2}
    assert (entry["ttft_ms_p99"], entry["pareto"]) == (6.0, True)


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([], set()),
        ([(1.0, 1.0), (2.0, 2.0), (3.0, 1.5), (2.0, 1.0), (None, 9.0)], {0, 1}),
        ([(1.0, 1.0), (1.0, 1.0), (2.0, 1.0)], {0, 1}),
    ],
)
def test_pareto_front(points: list[tuple[float | None, float]], front: set[int]) -> None:
    assert pareto_front(points) == front
