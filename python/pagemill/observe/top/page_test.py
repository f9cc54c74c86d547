"""The page over scripted servers, and the picture of docs/operations.md.

    PAGEMILL_SCREENSHOTS=docs/images python -m pytest python/pagemill/observe/top/page_test.py

writes the picture there; without the variable it goes to a temporary folder.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from pagemill.observe.top.followed import FollowedServer
from pagemill.observe.top.page import TopPage
from pagemill.observe.top.scripted_metrics import ScriptedClock, ScriptedMetrics

_SIZE = (124, 29)
_NEVER_S = 3600.0
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class _Load:
    """Two scripted servers under a load that rises and falls."""

    def __init__(self) -> None:
        self.clock = ScriptedClock()
        self.metrics = [ScriptedMetrics(), ScriptedMetrics()]
        self.servers = [
            FollowedServer(f"http://10.0.0.{index + 1}:8000", metrics.read, 10.0, self.clock)
            for index, metrics in enumerate(self.metrics)
        ]
        self._tick = 0

    def step(self) -> None:
        """A second passes."""
        self.clock.now += 1
        self._tick += 1
        for index, metrics in enumerate(self.metrics):
            level = 0.6 + 0.3 * math.sin(self._tick / 6 + index) + 0.1 * math.sin(self._tick)
            metrics.values |= {
                "num_requests_running": round(60 * level),
                "num_requests_waiting": round(max(0, 40 * (level - 0.7))),
                "kv_cache_usage_perc": 0.8 * level,
                "process_restarts_total": 0,
            }
            metrics.add(
                prompt_tokens_total=round(8000 * level),
                generation_tokens_total=round(2500 * level),
                request_success_total=round(12 * level),
                prefix_cache_queries_total=8000,
                prefix_cache_hits_total=round(8000 * (0.5 + 0.3 * level)),
                spec_decode_num_draft_tokens_total=1000,
                spec_decode_num_accepted_tokens_total=round(600 + 200 * level),
            )
            spread = [level * part / 10 for part in range(1, 11)]
            metrics.observe("time_to_first_token_seconds", *(0.3 * part for part in spread))
            metrics.observe("inter_token_latency_seconds", *(0.02 * part for part in spread))
            metrics.observe("request_queue_time_seconds", *(0.2 * part for part in spread))
            metrics.tenants = {
                name: (part * self._tick, 900 * part * self._tick, 300 * part * self._tick)
                for name, part in (("search", 5), ("support", 3), ("nightly", 1))
            }


def _text(pilot: Pilot[None], selector: str) -> list[str]:
    return [str(widget.content) for widget in pilot.app.query(selector).results(Static)]


def _cells(pilot: Pilot[None], name: str) -> list[list[str]]:
    shown: DataTable[object] = pilot.app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in shown.get_row_at(row)] for row in range(shown.row_count)]


async def _second(load: _Load, pilot: Pilot[None]) -> None:
    load.step()
    await pilot.press("r")
    await pilot.pause()


def test_the_page(tmp_path: Path) -> None:
    folder = Path(os.environ.get("PAGEMILL_SCREENSHOTS", tmp_path))

    async def body() -> None:
        load = _Load()
        load.step()
        async with TopPage(load.servers, _NEVER_S).run_test(size=_SIZE) as pilot:
            for _ in range(45):
                await _second(load, pilot)
            assert [row[2] for row in _cells(pilot, "servers")] == ["ready", "ready"]
            assert _cells(pilot, "tenants")[0] == ["search", "5", "4.5k", "1.5k"]
            first = _text(pilot, ".tile")
            assert any("█" in tile for tile in first) and not any("-" in tile for tile in first)
            picture = _FONTS.sub("", pilot.app.export_screenshot(title="pagemill top"))
            (folder / "top.svg").write_text(picture, encoding="utf-8")
            assert len(picture) < 200_000 and "url(http" not in picture
            await pilot.press("down")
            await pilot.pause()
            assert _text(pilot, ".tile") != first

    asyncio.run(body())


def test_a_server_goes_and_comes_back() -> None:
    async def body() -> None:
        load = _Load()
        load.step()
        async with TopPage(load.servers, _NEVER_S).run_test(size=(80, 30)) as pilot:
            await _second(load, pilot)
            load.metrics[0].away = "the server refused (401): A valid API key is required."
            await _second(load, pilot)
            (notice,) = _text(pilot, "#notice")
            assert "10.0.0.1:8000 is away: the server refused (401)" in notice
            assert [row[2] for row in _cells(pilot, "servers")] == ["away", "ready"]
            assert _text(pilot, ".tile")[0].startswith("-")
            assert "█" in _text(pilot, ".tile")[0]  # what it did stays
            load.metrics[0].away = ""
            await _second(load, pilot)
            await _second(load, pilot)
            assert _text(pilot, "#notice") == [""]
            assert not _text(pilot, ".tile")[0].startswith("-")

    asyncio.run(body())


def test_keys_pause_and_quit() -> None:
    async def body() -> None:
        load = _Load()
        load.step()
        page = TopPage(load.servers, _NEVER_S)
        async with page.run_test(size=_SIZE) as pilot:
            await pilot.press("p")
            assert _text(pilot, "#notice") == ["paused: p goes on"]
            await pilot.press("p")
            assert _text(pilot, "#notice") == [""]
            await pilot.press("q")
        assert page.return_code == 0

    asyncio.run(body())


def test_names_are_no_markup() -> None:
    async def body() -> None:
        load = _Load()
        load.metrics[0].tenants = {"[/b] [red]": (1, 2, 3)}
        load.servers[0].name = "http://[::1]:8000"
        load.servers[0].poll()
        load.metrics[0].tenants = {"[/b] [red]": (2, 4, 6)}
        load.clock.now += 1
        async with TopPage(load.servers, _NEVER_S).run_test(size=_SIZE) as pilot:
            await pilot.press("r")
            await pilot.pause()
            picture = pilot.app.export_screenshot()
            assert "[::1]" in picture and "[red]" in picture

    asyncio.run(body())
