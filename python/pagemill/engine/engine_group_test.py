"""Several fake engines, each behind a socket, as one client; `client_test` has the conformance."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pagemill import _native
from pagemill.engine.engine_group import EngineGroup
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.group_calls import StandingCalls, arguments_for, joined, one_is_enough
from pagemill.engine.messages import EngineRequest, ModelFacts
from pagemill.engine.outputs import EngineError
from pagemill.engine.socket_client import SocketClient
from pagemill.engine.testing.client_listener import Listener, expected, request, run_loop
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.engine.testing.fake_outputs import FAKE_CODEC

MODEL = ModelFacts(names=("fake",), path="", max_model_len=256, vocab_size=256)
LONG = 10**6  # tokens: more than a test waits for


class CalledEngine(FakeEngine):
    """A fake engine that takes weights."""

    def __init__(self, options: FakeOptions | None = None) -> None:
        super().__init__(options)
        self.weights: list[str] = []

    def update_weights(self, programs: Mapping[str, str]) -> None:
        """Keeps their name."""
        self.weights.append(programs["model"])


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
        server = EngineServer(fake_bindings(self.engines[index]), MODEL, FAKE_CODEC.schema)
        await server.listen(str(path))
        self.servers.insert(index, server)

    async def kill(self, index: int) -> None:
        """Ends an engine as if its process had ended; another one is not served yet."""
        await self.servers.pop(index).close()
        self.engines[index].shutdown()
        self.engines[index] = CalledEngine()

    async def group(self) -> tuple[EngineGroup, Listener]:
        """A started client of all engines that are served."""
        clients = [SocketClient(str(self.folder / f"{i}"), FAKE_CODEC) for i in range(2)]
        router = _native.Router(policy="prefix_aware", num_engines=2)
        group, listener = EngineGroup(clients, router), Listener()
        await group.start(listener.on_outputs, listener.on_lost)
        self.groups.append(group)
        await until(lambda: None not in group.engines() or len(self.servers) < 2)
        return group, listener

    def submitted(self) -> list[int]:
        """How many requests each engine got."""
        return [len(engine.submitted) for engine in self.engines]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def run(
    folder: Path, body: Callable[[Served], Awaitable[None]], options: Sequence[FakeOptions] = ()
) -> None:
    @contextlib.asynccontextmanager
    async def served() -> AsyncGenerator[Served, None]:
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
        async with served() as made:
            for index in range(2):
                await made.serve(index)
            await body(made)

    run_loop(main())


def blocks(first: int, request_id: int, max_tokens: int = 8) -> EngineRequest:
    """A prompt of two blocks that begins with `first`."""
    return request(request_id, *range(first, first + 32), max_tokens=max_tokens)


def test_load_spreads_and_outputs_are_those_of_one_engine(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        engines = [await group.submit([request(i, i)]) for i in range(10)]
        await received.until(lambda: len(received.ends) == 10)
        assert received.tokens == {i: expected(i, 8) for i in range(10)}
        assert served.submitted() == [5, 5]
        assert [engines.count(each) for each in (0, 1)] == [5, 5]

    run(tmp_path, body)


def test_a_prompt_returns_to_the_engine_that_has_its_prefix(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        first = await group.submit([blocks(0, 1)])
        second = await group.submit([blocks(50, 2)])
        assert first != second
        await received.until(lambda: len(received.ends) == 2)
        for turn in range(10, 13):
            assert await group.submit([blocks(50, turn)]) == second
            await received.until(lambda: turn in received.ends)  # noqa: B023
        # KV of another adapter or salt is another one.
        salted = request(20, *range(50, 82), cache_salt="other")
        assert await group.submit([salted]) == first

    run(tmp_path, body)


def test_a_prefix_that_all_share_gathers_none(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        for number in range(6):
            await group.submit([blocks(0, number, max_tokens=LONG)])
        assert served.submitted() == [3, 3]

    run(tmp_path, body)


def test_a_pinned_request_runs_where_it_should(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        for number in range(4):
            assert await group.submit([request(number, 1)], 1) == 1
        assert served.submitted() == [0, 4]
        # They are load: the others go to engine 0.
        assert await group.submit([request(9, 2)]) == 0
        for engine in (-1, 2):
            with pytest.raises(EngineError, match="the engines 0 to 1") as refused:
                await group.submit([request(10, 1)], engine)
            assert refused.value.code == "INVALID_ARGUMENT"
        await received.until(lambda: len(received.ends) == 5)

    run(tmp_path, body)


def test_requests_of_other_clients_are_load(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        other, _ = await served.group()
        for number in range(6):
            await other.submit([request(number, number, max_tokens=LONG)], 0)
        group, _ = await served.group()
        for number in range(6):
            assert await group.submit([request(number, number, max_tokens=LONG)]) == 1

    run(tmp_path, body)


def test_a_full_engine_is_passed_over(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        for engine in served.engines:
            engine.paused = True
        for number in range(2):
            await group.submit([request(number, 1)], 0)
        await until(lambda: group.room() <= MODEL.max_unfinished)
        for number in range(2, 4):
            assert await group.submit([request(number, 1)]) == 1
        with pytest.raises(EngineError) as refused:
            async with asyncio.timeout(20):
                while True:
                    group.room()
                    await asyncio.sleep(0.005)
        assert (refused.value.code, refused.value.retry_after_s) == ("RESOURCE_EXHAUSTED", 9)
        with pytest.raises(EngineError, match="waiting"):
            await group.submit([request(9, 1)])

    small = FakeOptions(max_running=1, max_waiting=1, retry_after_s=9)
    run(tmp_path, body, [small, small])


def test_an_engine_that_ends_loses_its_own_requests(tmp_path: Path) -> None:
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

    run(tmp_path, body)


def test_calls_reach_all_engines_and_those_that_come_back(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        assert await group.call("reset_prefix_cache") is True
        await group.call("update_weights", programs={"model": "first"})
        assert [engine.weights for engine in served.engines] == [["first"]] * 2
        await served.kill(1)
        await until(lambda: group.engines()[1] is None)
        await group.call("update_weights", programs={"model": "second"})
        await served.serve(1)
        await until(lambda: None not in group.engines())
        assert [engine.weights for engine in served.engines] == [["first", "second"], ["second"]]
        await group.submit([request(1, 1, max_tokens=LONG)], 1)
        assert await group.call("reset_prefix_cache") is False

    run(tmp_path, body)


def test_an_engine_that_cannot_catch_up_gets_no_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(served: Served) -> None:
        group, _ = await served.group()
        await group.call("update_weights", programs={"model": "new"})
        await served.kill(0)
        await until(lambda: group.engines()[0] is None)
        served.engines[0].update_weights = None  # type: ignore[assignment]
        await served.serve(0)
        await until(lambda: "engine 0 gets no requests: update_weights fails" in caplog.text)
        for number in range(4):
            assert await group.submit([request(number, number)]) == 1

    run(tmp_path, body)


def test_statistics_are_sums(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        await group.submit([request(1, 1, 2, 3)], 0)
        await group.submit([request(2, 4, 5)], 1)
        await received.until(lambda: len(received.ends) == 2)
        await until(lambda: group.stats().generation_tokens == 16)
        assert group.stats().prompt_tokens == 5
        assert [each and each.prompt_tokens for each in group.engines()] == [3, 2]

    run(tmp_path, body)


def test_a_cancelled_submit_that_is_refused_is_no_load(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        group, received = await served.group()
        for number in range(6):
            task = asyncio.create_task(group.submit([request(number, 1, priority=3)], 0))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await until(lambda: not group._engine_of)  # pyright: ignore[reportPrivateUsage]
        engines = [await group.submit([request(10 + i, i)]) for i in range(4)]
        assert sorted(engines) == [0, 0, 1, 1]
        await received.until(lambda: len(received.ends) == 4)

    run(tmp_path, body)


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
    assert one_is_enough("save_session", [absent])
    assert not one_is_enough("save_session", [absent, EngineError("INTERNAL", "disk full")])
    assert not one_is_enough("unload_adapter", [absent])
    assert joined("load_adapter", {}, {0: "first", 1: "second"}) == "first"


def test_standing_calls_are_what_a_new_engine_needs() -> None:
    calls = StandingCalls()
    done = (
        ("pause", {"mode": "keep"}),
        ("load_adapter", {"name": "sql", "path": "/a"}),
        ("update_weights", {"programs": {"model": "1"}}),
        ("load_adapter", {"name": "sql", "path": "/b"}),
        ("reset_prefix_cache", {}),
        ("resume", {}),
        ("sleep", {}),
        ("unload_adapter", {"name": "sql"}),
    )
    for operation, arguments in done:
        calls.note(operation, arguments)
        assert calls.lasts(operation) == (operation != "reset_prefix_cache")
    assert [operation for operation, _ in calls.all()] == [
        *("update_weights", "sleep", "unload_adapter")
    ]
    calls.note("wake", {})
    assert "sleep" not in dict(calls.all())
