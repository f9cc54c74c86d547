"""Tests of pagemill.server.shared_places."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pagemill.server.errors import ApiError
from pagemill.server.shared_places import SharedPlaces


class Requests:
    """Requests that hold a place until `leave`."""

    def __init__(self, count: int) -> None:
        self.places = SharedPlaces(count, "Too many.")
        self.leave = asyncio.Event()

    async def come(self, tenant: str) -> asyncio.Task[str]:
        """One more of a tenant; its result is the tenant's name."""
        task = asyncio.ensure_future(self._hold(tenant))
        await _settle()
        return task

    async def _hold(self, tenant: str) -> str:
        async with self.places.place(tenant):
            await self.leave.wait()
            return tenant


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _refused(task: asyncio.Task[str]) -> None:
    assert task.done()
    with pytest.raises(ApiError, match=r"^Too many\.$") as error:
        await task
    assert error.value.status == 429


def _run(test: Callable[[Requests], Awaitable[None]], count: int = 4) -> None:
    async def main() -> None:
        await test(Requests(count))

    asyncio.run(main())


def test_a_place_may_be_left_early() -> None:
    async def body(requests: Requests) -> None:
        async with requests.places.place("a") as place:
            await _refused(await requests.come("a"))
            place.leave()
            held = await requests.come("a")
            assert not held.done()
            place.lose()  # and then this one alone is refused
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(60)
            requests.leave.set()
            assert await held == "a"
            raise asyncio.CancelledError

    with pytest.raises(ApiError, match="Too many"):
        _run(body, count=1)


def test_one_tenant_has_all_places() -> None:
    async def body(requests: Requests) -> None:
        held = [await requests.come("a") for _ in range(4)]
        await _refused(await requests.come("a"))
        requests.leave.set()
        assert await asyncio.gather(*held) == ["a"] * 4
        assert await (await requests.come("a")) == "a"

    _run(body)


def test_another_tenant_gets_a_share() -> None:
    """The newest requests of the tenant with most places are refused, until both have as many."""

    async def body(requests: Requests) -> None:
        first = [await requests.come("a") for _ in range(4)]
        others = [await requests.come("b") for _ in range(2)]
        await _refused(first[3])
        await _refused(first[2])
        await _refused(await requests.come("b"))
        await _refused(await requests.come("a"))
        third = await requests.come("c")
        await _refused(await requests.come("c"))
        requests.leave.set()
        ends = await asyncio.gather(*first, *others, third, return_exceptions=True)
        assert sorted(end for end in ends if isinstance(end, str)) == ["a", "b", "b", "c"]

    _run(body)


def test_no_tenant_loses_its_only_place() -> None:
    async def body(requests: Requests) -> None:
        held = [await requests.come(tenant) for tenant in "abcd"]
        await _refused(await requests.come("e"))
        requests.leave.set()
        assert await asyncio.gather(*held) == list("abcd")

    _run(body)


def test_a_request_that_lost_its_place_ends_its_work_first() -> None:
    """What it holds is released before its refusal."""

    async def body(requests: Requests) -> None:
        released: list[str] = []

        async def slow() -> None:
            async with requests.places.place("a"):
                try:
                    await requests.leave.wait()
                finally:
                    released.append("a")

        await requests.come("a")
        newest = asyncio.ensure_future(slow())
        await _settle()
        other = await requests.come("b")
        assert released == ["a"] and not other.done()
        with pytest.raises(ApiError):
            await newest

    _run(body, 2)


def test_cancelled_requests_and_failures_leave() -> None:
    async def body(requests: Requests) -> None:
        for _ in range(3):
            held = await requests.come("a")
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
            with pytest.raises(TimeoutError, match="of its own"):
                async with requests.places.place("a"):
                    raise TimeoutError("of its own")
        assert not (await requests.come("a")).done()

    _run(body, 1)
