"""Tests of pagemill.server.capacity."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine

import pytest

from pagemill.server.capacity import Capacity


class Users:
    """Takes of a capacity, each of which lasts until it is ended."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.served: list[str] = []
        self._ends: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, *tenants: str, size: int = 1) -> asyncio.Task[None]:
        """One of each of `tenants`, in their order; returns the last."""
        for tenant in tenants:
            self._tasks.append(asyncio.ensure_future(self._use(tenant, size)))
            await _settle()
        return self._tasks[-1]

    async def end(self, count: int = 1) -> None:
        """Ends those that were served first, one after the other."""
        for _ in range(count):
            self._ends.pop(0).set()
            await _settle()

    async def _use(self, tenant: str, size: int) -> None:
        await self.capacity.take(size, tenant)
        self.served.append(tenant)
        end = asyncio.Event()
        self._ends.append(end)
        await end.wait()
        self.capacity.give(size, tenant)


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


def test_tenants_take_turns() -> None:
    async def body() -> None:
        users = Users(Capacity(1))
        await users.begin(*"aaaa", "b", "c", "b")
        await users.end(6)
        assert users.served == ["a", "a", "b", "c", "a", "b", "a"]

    _run(body)


def test_the_tenant_that_uses_least_is_next() -> None:
    async def body() -> None:
        users = Users(Capacity(3))
        await users.begin(*"aaaaa", "b")
        await users.end()
        assert users.served == ["a", "a", "a", "b"]
        await users.end()
        assert users.served[4:] == ["a"]

    _run(body)


def test_what_is_spare_is_for_a_tenant_that_uses_nothing() -> None:
    async def body() -> None:
        users = Users(Capacity(2, spare=1))
        await users.begin(*"aaa")
        assert users.served == ["a", "a"]
        await users.begin(*"bb", "c")
        assert users.served == ["a", "a", "b"], "one at a time"
        await users.end()
        assert users.served[3:] == ["c"], "it uses nothing, unlike b and a"
        await users.begin("c")
        assert len(users.served) == 4, "a, b and c use one each"
        await users.end()
        assert users.served[4:] == ["a"], "its second one ended"

    _run(body)


def test_more_than_all_is_used_alone() -> None:
    async def body() -> None:
        users = Users(Capacity(2))
        await users.begin("a")
        await users.begin("b", size=5)
        await users.begin("b")
        assert users.served == ["a"]
        await users.end()
        assert users.served == ["a", "b"]
        await users.end()
        assert users.served == ["a", "b", "b"]

    _run(body)


def test_waits_are_cancelled() -> None:
    async def body() -> None:
        users = Users(Capacity(2))
        await users.begin("a")
        large = await users.begin("b", size=2)
        await users.begin("b")
        assert users.served == ["a"]
        large.cancel()
        await _settle()
        assert users.served == ["a", "b"], "what waited behind it goes on"

    _run(body)


def test_a_wait_that_is_cancelled_when_its_turn_comes_gives_it_back() -> None:
    async def body() -> None:
        capacity = Capacity(1)
        await capacity.take(1, "a")
        waiting = asyncio.ensure_future(capacity.take(1, "b"))
        await _settle()
        capacity.give(1, "a")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(capacity.take(1, "c"), 60)

    _run(body)


@pytest.mark.parametrize("seed", range(10))
def test_never_more_than_there_is(seed: int) -> None:
    """Random takes, some of which are cancelled: bounds hold at any time, and all are served."""
    chance = random.Random(seed)
    in_use: Counter[str] = Counter()

    async def use(capacity: Capacity, tenant: str, size: int) -> None:
        await capacity.take(size, tenant)
        had = in_use[tenant]
        in_use[tenant] += size
        total = in_use.total()
        assert total == size or total <= 6 + (0 if had else 2)
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            in_use[tenant] -= size
            capacity.give(size, tenant)

    async def body() -> None:
        capacity = Capacity(6, spare=2)
        tasks: list[asyncio.Task[None]] = []
        for _ in range(200):
            tenant, size = chance.choice("abc"), chance.randrange(9)
            tasks.append(asyncio.ensure_future(use(capacity, tenant, size)))
            if not chance.randrange(3):
                await asyncio.sleep(0)
            if not chance.randrange(8):
                chance.choice(tasks).cancel()
        async with asyncio.timeout(60):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
        await capacity.take(6, "d")
        await capacity.take(2, "e")

    _run(body)
