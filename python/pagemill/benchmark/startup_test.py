"""The benchmark of starts, with a fake server that fills its cache folder."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pagemill.benchmark.server_process import RunningServer, ServerError, running_server
from pagemill.benchmark.startup import Start, Starts, run_starts, startup_report
from pagemill.benchmark.testing.fake_serve import COLD_S, COMMAND
from pagemill.config import EngineConfig, build


def _config(tmp_path: Path, **options: Any) -> EngineConfig:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    cache = str(tmp_path / "cache")
    return build(EngineConfig, {"model": str(model), "cache_dir": cache, **options})


def test_cold_and_warm_starts(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    were_empty: list[bool] = []
    done: list[int] = []

    def start(options: Mapping[str, Any]) -> AbstractContextManager[RunningServer]:
        asked.append(dict(options))
        were_empty.append(not any(Path(options["cache_dir"]).iterdir()))
        return running_server(options, COMMAND)

    config = _config(tmp_path, max_num_seqs=4)
    found = run_starts(config, 2, start, api_key="", on_start=lambda: done.append(1))
    assert (len(found.cold), len(found.warm), len(done)) == (2, 2, 4)
    assert were_empty == [True, False, True, False]
    assert all(COLD_S <= each.ready_s < each.first_token_s for each in found.cold)
    assert all(0 < each.ready_s < each.first_token_s for each in found.warm)
    assert all(each.peak_bytes for each in (*found.cold, *found.warm))
    # Each pair has a folder of its own, which is gone afterwards.
    folders = [each.pop("cache_dir") for each in asked]
    assert folders[0] == folders[1] != folders[2] == folders[3]
    assert list((tmp_path / "cache").iterdir()) == []
    assert asked[0] == {"model": found.model, "revision": None, "max_num_seqs": 4}


def test_a_server_that_does_not_start_ends_it(tmp_path: Path) -> None:
    def start(options: Mapping[str, Any]) -> AbstractContextManager[RunningServer]:
        return running_server({**options, "model": "broken"}, COMMAND)

    with pytest.raises(ServerError, match="no such model"):
        run_starts(_config(tmp_path), 1, start, api_key="", on_start=lambda: None)


def test_the_report() -> None:
    cold = [Start(3.0, 4.0, 2**21), Start(1.0, 2.0, 2**20), Start(2.0, 3.0, 2**20)]
    report = startup_report(Starts("m", cold, [Start(1.0, 1.5, None)]))
    assert report["cold_ready_s"] == {"median": 2.0, "min": 1.0, "max": 3.0}
    assert report["cold_peak_mib"] == {"median": 1.0, "min": 1.0, "max": 2.0}
    assert report["warm_first_token_s"]["median"] == 1.5
    assert report["warm_peak_mib"] is None
