"""When models are loaded and stopped, and what requests get meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagemill.model_host.hosted_model import ModelState
from pagemill.model_host.testing.fake_host import MEMORY, FakeHost, fake_host
from pagemill.router.testing.fake_fleet import until

SIZES = (300, 400, 500, 700)


def message(got: httpx.Response, status: int = 503) -> str:
    assert got.status_code == status, got.text
    return got.json()["error"]["message"]


async def holding(host: FakeHost, name: str, end: Path) -> asyncio.Task[httpx.Response]:
    """A request that runs until the file `end` exists; it has reached its model."""
    task = asyncio.create_task(host.complete(name, end=str(end)))
    model = host.model(name)
    await until(lambda: model.state is ModelState.LOADED and model.users > 0)
    return task


async def leave(*requests: asyncio.Task[Any]) -> None:
    """Their clients go away."""
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 240))


def test_a_model_is_loaded_once_when_requests_name_it() -> None:
    async def test() -> None:
        entries = {"a": {"model": "delay=0.1", "aliases": ["other"]}, "b": {"model": ""}}
        async with fake_host(entries) as host:
            assert host.loaded() == []
            names = ["a"] * 4 + ["other", None]
            answers = await asyncio.gather(*(host.complete(name) for name in names))
            assert len({got.json()["process"] for got in answers}) == 1
            assert host.loaded() == ["a"] and host.model("a").counts.starts == 1
            assert host.model("other") is host.model("a") and host.host.waiting == 0

    run(test())


def test_the_least_recently_used_model_makes_room() -> None:
    async def test() -> None:
        entries = {name: {"model": "bytes=400"} for name in ("a", "b", "c")}
        async with fake_host(entries) as host:
            for name, loaded in (("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("b", "bc")):
                assert (await host.complete(name)).status_code == 200
                assert host.loaded() == list(loaded)
            assert host.model("a").counts.stops == {"memory": 1}
            assert sum(each.reserved_bytes for each in host.host.models) == 800
        async with fake_host(entries, max_models=1) as host:
            for name in ("a", "b"):
                await host.complete(name)
                assert host.loaded() == [name]

    run(test())


def test_a_busy_model_is_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        entries = {name: {"model": "bytes=600"} for name in ("a", "b")}
        entries["small"] = {"model": "bytes=100"}
        async with fake_host(entries) as host:
            ends = [tmp_path / "first", tmp_path / "second"]
            busy = await holding(host, "a", ends[0])
            waits = asyncio.create_task(host.complete("b"))
            await until(lambda: "busy models: 1" in host.model("b").waits_for)
            assert (await host.complete("small")).status_code == 200  # it need not wait for that
            await host.host.unload(host.model("small"))
            host.limit_waits(0.1)
            refused = message(await host.complete("b"))
            assert "it takes 600 bytes, but 400 may be used; busy models: 1." in refused
            assert host.loaded() == ["a"]
            await leave(waits)
            # The load that no request waits for any more is given up, and is no failure.
            await until(lambda: host.model("b").state is ModelState.UNLOADED)
            ends[0].touch()
            assert (await busy).status_code == 200
            host.limit_waits(60.0)
            busy = await holding(host, "a", ends[1])
            waits = asyncio.create_task(host.complete("b"))
            await until(lambda: "busy models: 1" in host.model("b").waits_for)
            ends[1].touch()
            assert (await waits).status_code == 200
            assert (await busy).status_code == 200 and host.loaded() == ["b"]
            assert host.model("b").counts.failures == 0

    run(test())


def test_a_model_that_cannot_start_is_refused_with_the_reason() -> None:
    async def test() -> None:
        entries = {
            "a": {"model": "fails=no+such+file"},
            "large": {"model": "bytes=1001"},
            "half": {"model": "bytes=501", "options": {"memory-utilization": 0.5}},
            "kept": {"model": "bytes=1", "keep": True},
        }
        async with fake_host(entries) as host:
            got = await asyncio.gather(*(host.complete("a") for _ in range(3)))
            for each in got:
                assert "`a` cannot be served: no such file." in message(each)
            assert host.model("a").counts.failures == 1
            again = await host.complete("a")  # at once: no second start
            assert "no such file" in message(again) and again.headers["retry-after"] in ("1", "2")
            assert host.model("a").counts.failures == 1
            assert "it takes 1001 bytes, but 999" in message(await host.complete("large"))
            assert "it takes 501 bytes, but 500" in message(await host.complete("half"))
            model = host.model("a")
            delays: list[float] = []
            for _ in range(9):
                model.begins(asyncio.create_task(asyncio.sleep(0)))
                model.has_ended("no such file")
                delays.append(round(model.retry_at - asyncio.get_running_loop().time()))
            assert delays == [2, 4, 8, 16, 32, 60, 60, 60, 60]
            model.begins(asyncio.create_task(asyncio.sleep(0)))
            model.state = ModelState.UNLOADING
            model.has_ended("")  # it was stopped: what failed long before does not count
            model.begins(asyncio.create_task(asyncio.sleep(0)))
            model.has_ended("no such file")
            assert model.retry_at - asyncio.get_running_loop().time() < 1.5

    run(test())


def test_a_process_that_ends_is_started_again() -> None:
    async def test() -> None:
        entries = {"a": {"model": "prints=loading+..."}, "b": {"model": "dies=3"}}
        async with fake_host(entries, load_timeout=60.0) as host:
            process = (await host.complete("a")).json()["process"]
            os.kill(process, signal.SIGKILL)
            await until(lambda: host.model("a").state is ModelState.FAILED)
            assert "was killed by signal 9" in message(await host.complete("a"))
            host.model("a").forgive()
            assert (await host.complete("a")).json()["process"] != process
            assert "broke off" in message(await host.complete("b"), 502)
            await until(lambda: host.model("b").state is ModelState.FAILED)
            assert host.model("b").reason.startswith("its process ended with status 3")
            assert host.model("b").counts.requests == {"failed": 1}

    run(test())


def test_a_client_that_leaves_while_its_model_is_loaded(tmp_path: Path) -> None:
    async def test() -> None:
        loaded = tmp_path / "loaded"
        async with fake_host({"a": {"model": f"loads={loaded}"}}, idle_timeout=0.1) as host:
            request = asyncio.create_task(host.complete("a"))
            await until(lambda: host.model("a").users == 1)
            await leave(request)
            await until(lambda: host.model("a").users == 0)
            assert host.host.waiting == 0 and host.model("a").counts.requests == {"aborted": 1}
            # It is loaded all the same, for those that come next, and stopped when none comes.
            loaded.touch()
            await until(lambda: host.model("a").counts.stops == {"idle": 1})
            await until(lambda: host.model("a").state is ModelState.UNLOADED)
            assert host.model("a").counts.starts == 1

    run(test())


def test_no_model_is_stopped_for_one_that_no_request_waits_for(tmp_path: Path) -> None:
    async def test() -> None:
        for size, settings in ((600, {}), (1, {"max_models": 1})):
            started = tmp_path / f"{size}"
            entries = {
                "a": {"model": f"bytes={size}"},
                "b": {"model": f"bytes={size}&starts={started}"},
            }
            async with fake_host(entries, **settings) as host:
                assert (await host.complete("a")).status_code == 200
                waits = asyncio.create_task(host.host.load(host.model("b")))
                await until(lambda h=host: h.model("b").waits_for == "its process starts")
                await leave(waits)
                started.touch()
                await until(lambda h=host: h.model("b").state is ModelState.UNLOADED)
                assert host.loaded() == ["a"] and host.model("b").counts.failures == 0

    run(test())


def test_an_idle_model_is_stopped_and_a_kept_one_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        entries = {
            "kept": {"model": "bytes=600", "keep": True},
            "short": {"model": "", "idle-timeout": 0.1},
            "long": {"model": ""},
            "large": {"model": "bytes=600"},
        }
        async with fake_host(entries) as host:
            await until(lambda: host.loaded() == ["kept"])
            await host.complete("long")
            end = tmp_path / "end"
            busy = await holding(host, "short", end)
            await asyncio.sleep(0.2)
            assert "short" in host.loaded()
            end.touch()
            await busy
            await until(lambda: host.loaded() == ["kept", "long"])
            assert (await host.complete("short")).status_code == 200  # and is loaded again
            assert "it takes 600 bytes" in message(await host.complete("large"))
            assert "kept" in host.loaded()
            process = (await host.complete("kept")).json()["process"]
            os.kill(process, signal.SIGKILL)
            await until(lambda: host.model("kept").counts.starts == 2)

    run(test())


def test_what_waits_is_bounded() -> None:
    async def test() -> None:
        entries = {"a": {"model": "delay=3600"}}
        async with fake_host(entries, max_waiting=2) as host:
            waiting = [asyncio.create_task(host.complete("a")) for _ in range(2)]
            await until(lambda: host.host.waiting == 2)
            got = [await host.complete("a")]
            assert message(got[0]).startswith("Too many requests wait")
            await leave(*waiting)
            await until(lambda: host.host.waiting == 0)
            host.limit_waits(0.1)
            got.append(await host.complete("a"))
            assert "The model `a` is not loaded after 0.1 s" in message(got[1])
            assert all(each.headers["retry-after"] == "5" for each in got)
        async with fake_host(entries, load_timeout=0.5) as host:
            assert "took longer than 0.5 s" in message(await host.complete("a"))
            assert host.model("a").state is ModelState.FAILED

    run(test())


def test_a_random_load_stays_within_the_memory_and_loses_nothing() -> None:
    async def test() -> None:
        choose = random.Random(7)
        entries = {
            name: {"model": f"bytes={size}"} for name, size in zip("abcd", SIZES, strict=True)
        }
        async with fake_host(entries, wait_timeout=100.0) as host:

            async def client() -> list[int]:
                got: list[int] = []
                for _ in range(5):
                    fields = {"seconds": choose.choice([0, 0, 0.1, 0.3])}
                    work = asyncio.create_task(host.complete(choose.choice("abcd"), **fields))
                    if choose.random() < 0.2:
                        await asyncio.sleep(0.2 * choose.random())
                        work.cancel()
                    await asyncio.wait({work})
                    if not work.cancelled():
                        got.append(work.result().status_code)
                    assert sum(each.reserved_bytes for each in host.host.models) <= MEMORY
                return got

            statuses = sum(await asyncio.gather(*(client() for _ in range(6))), [])
            assert statuses and set(statuses) == {200}
            await until(lambda: all(each.users == 0 for each in host.host.models))
            assert host.host.waiting == 0
            assert not any(each.counts.failures for each in host.host.models)
            assert sum(each.counts.stops["memory"] for each in host.host.models) > 0

    run(test())


def test_a_model_is_unloaded_while_it_waits_for_its_turn(tmp_path: Path) -> None:
    async def test() -> None:
        loaded = tmp_path / "loaded"
        entries = {"a": {"model": f"loads={loaded}"}, "b": {"model": "bytes=1001"}}
        entries["c"] = {"model": ""}
        async with fake_host(entries) as host:
            a, b, c = (host.model(name) for name in "abc")
            requests = [asyncio.create_task(host.complete("a"))]
            await until(lambda: a.process is not None and not a.waits_for)
            for name, model in (("b", b), ("c", c)):
                requests.append(asyncio.create_task(host.complete(name)))
                await until(lambda m=model: m.waits_for == "other models are being loaded")
            unloading = asyncio.create_task(host.host.unload(c))
            await until(lambda: c.state is ModelState.UNLOADING)
            loaded.touch()
            await unloading
            first, refused, unloaded = await asyncio.gather(*requests)
            assert first.status_code == 200
            assert "it takes 1001 bytes" in message(refused)
            assert "was unloaded" in message(unloaded)

    run(test())


def test_few_processes_start_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pagemill.model_host.host._MAX_STARTING", 2)

    async def test() -> None:
        loaded = tmp_path / "loaded"
        entries = {name: {"model": f"loads={loaded}"} for name in "abcdef"}
        async with fake_host(entries) as host:
            models = [host.model(name) for name in entries]
            left = [asyncio.create_task(host.complete(each.name)) for each in models[:-1]]
            await until(lambda: all(each.users for each in models[:-1]))
            await until(lambda: sum(each.process is not None for each in models) == 2)
            await leave(*left)
            await until(lambda: not any(each.users for each in models))
            assert sum(each.process is not None for each in models) == 2
            loaded.touch()
            assert (await host.complete("f")).status_code == 200
            # No request waited for some others any more when they could have started.
            assert sum(each.counts.starts for each in models) < len(models)

    run(test())


def test_the_end_waits_for_no_process_that_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagemill.model_host.host._STOP_GRACE_S", 0.2)

    async def test() -> None:
        async with fake_host({"a": {"model": "stuck=1"}}, shutdown_timeout=600.0) as host:
            process = (await host.complete("a")).json()["process"]
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)

    asyncio.run(asyncio.wait_for(test(), 120))


def test_the_end_lets_no_process_live() -> None:
    async def test() -> None:
        processes: list[int] = []
        entries = {"a": {"model": ""}, "loads": {"model": "delay=30"}, "b": {"model": ""}}
        async with fake_host(entries) as host:
            for name in ("a", "b"):
                processes.append((await host.complete(name)).json()["process"])
            loading = asyncio.create_task(host.complete("loads"))
            await until(lambda: host.model("loads").process is not None)
        await asyncio.gather(loading, return_exceptions=True)
        for process in processes:
            with pytest.raises(ProcessLookupError):
                os.kill(process, 0)
        assert all(each.run is None for each in host.host.models)

    run(test())


def test_a_spare_process_becomes_the_next_models() -> None:
    async def test() -> None:
        entries = {name: {"model": ""} for name in ("a", "b", "c")}
        async with fake_host(entries) as host:
            await until(lambda: len(_children()) == 1)
            (spare,) = _children()
            assert (await host.complete("a")).json()["process"] == spare
            await until(lambda: len(_children()) == 2)
            (spare,) = _children() - {spare}
            os.kill(spare, signal.SIGKILL)
            await until(lambda: not Path(f"/proc/{spare}").exists())
            assert (await host.complete("b")).json()["process"] != spare
            await until(lambda: len(_children()) == 3)
            assert (await host.complete("c")).status_code == 200
            assert len(_children()) == 3  # all models are loaded
            await host.host.unload(host.model("a"))
            await until(lambda: len(_children()) == 3)
        assert not _children()
        async with fake_host(entries, spare_process=False) as host:
            assert not _children()
            assert (await host.complete("a")).status_code == 200
            assert len(_children()) == 1

    run(test())


def _children() -> set[int]:
    """The living processes that this one has started."""
    pid = os.getpid()
    children = {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return {child for child in children if not _has_ended(child)}


def _has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
