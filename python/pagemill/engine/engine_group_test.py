"""Several fake engines, each behind a socket, as one client; `client_test` has the conformance."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pagemill import _native
from pagemill.engine.engine_group import EngineGroup
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.group_calls import (
    StandingCalls,
    arguments_for,
    changed_by,
    has_nothing_to_do,
    joined,
)
from pagemill.engine.messages import EngineRequest, ModelFacts
from pagemill.engine.outputs import EngineError
from pagemill.engine.socket_client import SocketClient
from pagemill.engine.testing.client_listener import Listener, expected, request, run_loop
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.engine.testing.fake_outputs import FAKE_CODEC
from pagemill.engine.testing.fake_types import FakeStatusError

MODEL = ModelFacts(names=("fake",), path="", max_model_len=256, vocab_size=256)
LONG = 10**6  # tokens: more than a test waits for


class CalledEngine(FakeEngine):
    """A fake engine that takes weights and adapters, and has those of a folder."""

    on_demand = True

    def __init__(self, options: FakeOptions | None = None) -> None:
        super().__init__(options)
        self.weights: list[str] = []
        self.loaded: dict[str, str] = {}
        self.broken: set[str] = set()
        """What it cannot do: operations, and paths of adapters."""
        self.goes_on = threading.Event()
        """Weights are updated once it is set."""
        self.goes_on.set()

    def update_weights(self, programs: Mapping[str, str]) -> None:
        """Keeps their name."""
        self.goes_on.wait(60)
        self._check("update_weights")
        self.weights.append(programs["model"])

    def resume(self) -> None:
        """Does nothing."""
        self._check("resume")

    def load_adapter(self, name: str, path: str, load_inplace: bool = False) -> str:
        """Returns `path`."""
        if name in self.loaded and not load_inplace:
            raise FakeStatusError("INVALID_ARGUMENT", "is loaded already")
        self._check(path)
        self.loaded[name] = path
        return path

    def unload_adapter(self, name: str) -> None:
        """Forgets it."""
        if self.loaded.pop(name, None) is None:
            raise FakeStatusError("NOT_FOUND", "does not exist")

    def require_adapter(self, name: str) -> None:
        """Has it from the folder."""
        self.loaded.setdefault(name, "folder")

    def id_of(self, name: str) -> int:
        """Of those that are loaded."""
        return [*self.loaded].index(name) + 1

    def id_for_media(self, kinds: Collection[str]) -> int:
        """No media have one."""
        return 0

    def _check(self, what: str) -> None:
        if what in self.broken:
            raise FakeStatusError("INTERNAL", f"{what} is broken")


@dataclass
class Served:
    """Engines behind sockets in `folder`, and clients of all of them."""

    folder: Path
    engines: list[CalledEngine]
    servers: list[EngineServer] = field(default_factory=list[EngineServer])
    groups: list[EngineGroup] = field(default_factory=list[EngineGroup])

    async def serve(self, index: int) -> None:
        """Puts an engine behind its socket."""
        path = self.folder / f"{index}"
        path.unlink(missing_ok=True)
        engine = self.engines[index]
        bindings = replace(fake_bindings(engine), adapters=engine)
        server = EngineServer(bindings, MODEL, FAKE_CODEC.schema)
        await server.listen(str(path))
        self.servers.insert(index, server)

    async def kill(self, index: int) -> None:
        """Ends an engine as if its process had ended; another one is not served yet."""
        await self.servers.pop(index).close()
        self.engines[index].shutdown()
        self.engines[index] = CalledEngine()

    async def restart(self, index: int, group: EngineGroup) -> CalledEngine:
        """Kills an engine; the next one, which is not served yet."""
        await self.kill(index)
        await until(lambda: group.engines()[index] is None)
        return self.engines[index]

    async def group(self) -> tuple[EngineGroup, Listener]:
        """A started client of all engines that are served."""
        clients = [SocketClient(str(self.folder / f"{i}"), FAKE_CODEC) for i in range(2)]
        router = _native.Router(policy="prefix_aware", num_engines=2)
        group, listener = EngineGroup(clients, router), Listener()
        await group.start(listener.on_outputs, listener.on_lost)
        self.groups.append(group)
        await until(lambda: None not in group.engines() or len(self.servers) < 2)
        return group, listener

    def pause(self, paused: bool) -> None:
        """Whether all engines run no step."""
        for engine in self.engines:
            engine.paused = paused

    def submitted(self) -> list[int]:
        """How many requests each engine got."""
        return [len(engine.submitted) for engine in self.engines]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def run(body: Callable[[Served], Awaitable[None]], options: Sequence[FakeOptions] = ()) -> None:
    @contextlib.asynccontextmanager
    async def served(folder: Path) -> AsyncGenerator[Served, None]:
        made = Served(folder, [CalledEngine(each) for each in options or (FakeOptions(),) * 2])
        try:
            yield made
        finally:
            for group in made.groups:
                await group.close()
            for server in made.servers:
                await server.close()
            for engine in made.engines:
                engine.shutdown()

    async def main() -> None:
        # pytest's own folders are too long for a socket's path
        with tempfile.TemporaryDirectory() as folder:
            await use(Path(folder))

    async def use(folder: Path) -> None:
        async with served(folder) as made:
            for index in range(2):
                await made.serve(index)
            await body(made)

    run_loop(main())


def blocks(first: int, request_id: int, max_tokens: int = 8) -> EngineRequest:
    """A prompt of two blocks that begins with `first`."""
    return request(request_id, *range(first, first + 32), max_tokens=max_tokens)


def test_load_spreads_and_outputs_are_those_of_one_engine() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        served.pause(True)
        engines = [await group.submit([request(i, i)]) for i in range(10)]
        served.pause(False)
        await received.until(lambda: len(received.ends) == 10)
        assert received.tokens == {i: expected(i, 8) for i in range(10)}
        assert served.submitted() == [5, 5]
        assert [engines.count(each) for each in (0, 1)] == [5, 5]

    run(body)


def test_a_prompt_returns_to_the_engine_that_has_its_prefix() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        served.pause(True)
        first = await group.submit([blocks(0, 1)])
        second = await group.submit([blocks(50, 2)])
        served.pause(False)
        assert first != second
        await received.until(lambda: len(received.ends) == 2)
        for turn in range(10, 13):
            assert await group.submit([blocks(50, turn)]) == second
            await received.until(lambda: turn in received.ends)  # noqa: B023
        # KV of another adapter or salt is another one.
        salted = request(20, *range(50, 82), cache_salt="other")
        assert await group.submit([salted]) == first

    run(body)


def test_a_prefix_that_all_share_gathers_none() -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        for number in range(6):
            await group.submit([blocks(0, number, max_tokens=LONG)])
        assert served.submitted() == [3, 3]

    run(body)


def test_a_pinned_request_runs_where_it_should() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        served.pause(True)
        for number in range(4):
            assert await group.submit([request(number, 1)], 1) == 1
        assert served.submitted() == [0, 4]
        # They are load: the others go to engine 0.
        assert await group.submit([request(9, 2)]) == 0
        for engine in (-1, 2):
            with pytest.raises(EngineError, match="the engines 0 to 1") as refused:
                await group.submit([request(10, 1)], engine)
            assert refused.value.code == "INVALID_ARGUMENT"
        served.pause(False)
        await received.until(lambda: len(received.ends) == 5)

    run(body)


def test_requests_of_other_clients_are_load() -> None:
    async def body(served: Served) -> None:
        other, _ = await served.group()
        for number in range(6):
            await other.submit([request(number, number, max_tokens=LONG)], 0)
        group, _ = await served.group()
        for number in range(6):
            assert await group.submit([request(number, number, max_tokens=LONG)]) == 1

    run(body)


def test_a_full_engine_is_passed_over() -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        served.pause(True)
        for number in range(2):
            await group.submit([request(number, 1)], 0)
        await until(lambda: group.room() <= MODEL.max_unfinished)
        for number in range(2, 4):
            assert await group.submit([request(number, 1)]) == 1
        with pytest.raises(EngineError) as refused:
            async with asyncio.timeout(60):
                while True:
                    group.room()
                    await asyncio.sleep(0.005)
        assert (refused.value.code, refused.value.retry_after_s) == ("RESOURCE_EXHAUSTED", 9)
        with pytest.raises(EngineError, match="waiting"):
            await group.submit([request(9, 1)])

    small = FakeOptions(max_running=1, max_waiting=1, retry_after_s=9)
    run(body, [small, small])


def test_an_engine_that_ends_loses_its_own_requests() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        await group.submit([request(1, 1, max_tokens=LONG)], 0)
        await group.submit([request(2, 2, max_tokens=200)], 1)
        await received.until(lambda: 1 in received.tokens)
        await served.kill(0)
        await received.until(lambda: 1 in received.ends)
        assert (received.ends[1].finish_reason, received.ends[1].error_code) == (
            "error",
            "UNAVAILABLE",
        )
        assert group.connected and group.engines()[0] is None
        with pytest.raises(EngineError, match="started again"):
            await group.submit([request(3, 3)], 0)
        for number in range(4, 8):
            assert await group.submit([request(number, number)]) == 1
        await received.until(lambda: 2 in received.ends)
        assert received.tokens[2] == expected(2, 200)
        await served.serve(0)
        await until(lambda: None not in group.engines())
        assert await group.submit([request(8, 8)]) == 0
        await received.until(lambda: 8 in received.ends)
        assert received.lost is None

    run(body)


def test_calls_reach_all_engines_and_those_that_come_back() -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        assert await group.call("reset_prefix_cache") is True
        await group.call("update_weights", programs={"model": "first"})
        assert [engine.weights for engine in served.engines] == [["first"]] * 2
        await served.restart(1, group)
        await group.call("update_weights", programs={"model": "second"})
        await served.serve(1)
        await until(lambda: None not in group.engines())
        assert [engine.weights for engine in served.engines] == [["first", "second"], ["second"]]
        await group.submit([request(1, 1, max_tokens=LONG)], 1)
        assert await group.call("reset_prefix_cache") is False

    run(body)


def test_an_engine_that_cannot_catch_up_gets_no_requests_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        await group.call("update_weights", programs={"model": "new"})
        engine = await served.restart(0, group)
        assert group.states() == ("restarting", "ready")
        engine.broken.add("update_weights")
        await served.serve(0)
        await until(lambda: group.states() == ("failed: update_weights", "ready"))
        assert "engine 0: update_weights fails, it gets no requests" in caplog.text
        for number in range(4):
            assert await group.submit([request(number, number)]) == 1
        with pytest.raises(EngineError, match="until update_weights succeeds"):
            await group.submit([request(4, 4)], 0)
        engine.broken.clear()
        await until(lambda: group.states() == ("ready", "ready"))
        assert engine.weights == ["new"]

    run(body)


def test_an_engine_that_comes_back_has_the_adapters_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        await group.call("load_adapter", name="sql", path="/new")
        await group.call("load_adapter", name="gone", path="/gone")
        engine = await served.restart(0, group)
        engine.loaded = {"sql": "/at-start", "gone": "/at-start"}
        engine.broken.add("/gone")
        await served.serve(0)
        await until(lambda: group.states() == ("ready", "ready"))
        assert engine.loaded == {"sql": "/new"}
        assert "engine 0: load_adapter fails, it lacks an adapter" in caplog.text
        engine.broken.clear()
        await group.call("load_adapter", name="gone", path="/gone")  # it is there on engine 1
        assert [each.loaded for each in served.engines] == [{"sql": "/new", "gone": "/gone"}] * 2

    run(body)


def test_a_call_whose_caller_leaves_is_done_and_noted() -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        for engine in served.engines:
            engine.goes_on.clear()
        leaving = asyncio.create_task(group.call("update_weights", programs={"model": "1"}))
        await asyncio.sleep(0.05)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        next_one = asyncio.create_task(group.call("load_adapter", name="sql", path="/a"))
        await asyncio.sleep(0.05)
        assert not next_one.done()  # engines work
        for engine in served.engines:
            engine.goes_on.set()
        await next_one
        engine = await served.restart(0, group)
        await served.serve(0)
        await until(lambda: group.states() == ("ready", "ready"))
        assert engine.weights == ["1"] and engine.loaded == {"sql": "/a"}

    run(body)


def test_an_engine_that_fails_what_another_has_done_gets_no_requests() -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        failing = served.engines[1]
        failing.broken |= {"update_weights", "resume"}
        for operation, arguments in (
            ("update_weights", {"programs": {"model": "1"}}),
            ("resume", {}),
        ):
            with pytest.raises(EngineError, match=f"{operation} is broken"):
                await group.call(operation, **arguments)
        assert group.states() == ("ready", "failed: update_weights")
        for number in range(4):
            assert await group.submit([request(number, number)]) == 0
        failing.broken.remove("update_weights")
        await group.call("update_weights", programs={"model": "2"})  # the operator's next try
        assert [engine.weights for engine in served.engines] == [["1", "2"], ["2"]]
        assert group.states() == ("ready", "failed: resume")
        failing.broken.clear()
        await until(lambda: group.states() == ("ready", "ready"))
        # The one that did it is not asked again, and a new one does it.
        assert [engine.weights for engine in served.engines] == [["1", "2"], ["2"]]
        await served.restart(1, group)
        await served.serve(1)
        await until(lambda: group.states() == ("ready", "ready"))
        assert served.engines[1].weights == ["2"]

    run(body)


def test_an_adapter_that_one_engine_refuses_is_loaded_by_the_next_try() -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        first, second = served.engines
        first.loaded, second.loaded = {"sql": "/old"}, {"sql": "/old"}
        second.broken.add("/new")
        load = {"name": "sql", "path": "/new"}
        with pytest.raises(EngineError, match="/new is broken"):
            await group.call("load_adapter", **load, load_inplace=True)
        assert (first.loaded, second.loaded) == ({"sql": "/new"}, {})  # and not the old one
        assert group.states() == ("ready", "ready")
        second.broken.clear()
        assert await group.call("load_adapter", **load) == "/new"
        assert first.loaded == second.loaded == {"sql": "/new"}
        with pytest.raises(EngineError, match="loaded already"):
            await group.call("load_adapter", **load)
        second.loaded.clear()
        await group.call("unload_adapter", name="sql")
        assert first.loaded == second.loaded == {}
        with pytest.raises(EngineError, match="does not exist"):
            await group.call("unload_adapter", name="sql")

    run(body)


def test_only_the_engine_of_a_request_requires_its_adapter() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        await group.submit([request(1, 1, adapter="late")], 1)
        await received.until(lambda: 1 in received.ends)
        assert [engine.loaded for engine in served.engines] == [{}, {"late": "folder"}]

    run(body)


def test_statistics_are_sums() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        await group.submit([request(1, 1, 2, 3)], 0)
        await group.submit([request(2, 4, 5)], 1)
        await received.until(lambda: len(received.ends) == 2)
        await until(lambda: group.stats().generation_tokens == 16)
        assert group.stats().prompt_tokens == 5
        assert [each and each.prompt_tokens for each in group.engines()] == [3, 2]

    run(body)


def test_a_cancelled_submit_that_is_refused_is_no_load() -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        for number in range(6):
            task = asyncio.create_task(group.submit([request(number, 1, priority=3)], 0))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await until(lambda: not group._engine_of)  # pyright: ignore[reportPrivateUsage]
        served.pause(True)
        engines = [await group.submit([request(10 + i, i)]) for i in range(4)]
        served.pause(False)
        assert sorted(engines) == [0, 0, 1, 1]
        await received.until(lambda: len(received.ends) == 4)

    run(body)


def test_each_engine_writes_a_file_of_its_own(tmp_path: Path) -> None:
    profiles = [
        arguments_for("start_profile", {"path": "/p/profile-1.json"}, engine)["path"]
        for engine in range(2)
    ]
    assert profiles == ["/p/profile-1.json", "/p/profile-1.engine-1.json"]
    session = {"path": str(tmp_path / "kv"), "token_ids": [1]}
    for engine in range(3):
        Path(arguments_for("save_session", session, engine)["path"]).write_text(f"{engine}")
    assert joined("save_session", session, {0: 16, 1: 48, 2: 0}) == 48
    assert [path.name for path in tmp_path.iterdir()] == ["kv"]
    assert (tmp_path / "kv").read_text() == "1"


def test_answers_become_one() -> None:
    counts = {"num_steps": 2, "num_events": 5, "complete": True, "path": "a"}
    other = {**counts, "path": "b", "complete": False}
    assert joined("stop_profile", {}, {0: counts, 1: other}) == {
        "num_steps": 4,
        "num_events": 10,
        "complete": False,
        "path": "a",
    }
    assert joined("wait_paused", {}, {0: True, 1: False}) is False
    absent = EngineError("NOT_FOUND", "nothing is cached")
    assert has_nothing_to_do("save_session", absent)
    assert not has_nothing_to_do("save_session", EngineError("INTERNAL", "disk full"))
    assert has_nothing_to_do("unload_adapter", absent)
    assert not has_nothing_to_do("load_adapter", absent)
    listed = [{"name": "a", "rank": 1}], [{"name": "b", "rank": 2}, {"name": "a", "rank": 1}]
    assert joined("adapters", {}, {0: listed[0], 1: listed[1]}) == [*listed[0], listed[1][0]]
    assert joined("load_adapter", {}, {0: "first", 1: "second"}) == "first"


def test_standing_calls_are_what_a_new_engine_needs() -> None:
    calls = StandingCalls(lora_modules=["sql"])
    done = (
        ("pause", {"mode": "keep"}),
        ("load_adapter", {"name": "sql", "path": "/a"}),
        ("load_adapter", {"name": "other", "path": "/a"}),
        ("update_weights", {"path": "/1", "weight_version": "1"}),
        ("load_adapter", {"name": "sql", "path": "/b"}),
        ("resume", {}),
        ("sleep", {}),
        ("unload_adapter", {"name": "sql"}),
        ("unload_adapter", {"name": "other"}),
    )
    for operation, arguments in done:
        calls.note(operation, arguments)
    assert [operation for operation, _ in calls.by_change().values()] == [
        *("update_weights", "update_weight_version", "sleep", "unload_adapter")
    ]
    calls.note("wake", {})
    assert "sleep" not in calls.by_change()
    calls.note("update_weight_version", {"new_version": "2"})
    calls.note("update_weights", {"path": "/2", "weight_version": None})
    assert [*calls.by_change().values()][1:] == [
        ("update_weight_version", {"new_version": "2"}),
        ("update_weights", {"path": "/2", "weight_version": None}),
    ]
    assert changed_by("reset_prefix_cache", {}) is None


def test_names_that_are_loaded_and_unloaded_leave_nothing() -> None:
    calls = StandingCalls()
    for number in range(100):
        name = f"adapter-{number}"
        calls.note("load_adapter", {"name": name, "path": "/a"})
        calls.note("unload_adapter", {"name": name})
    assert not calls.by_change()
