"""A client of several engines of one model, which chooses one of them for each request.

    group = EngineGroup([SocketClient(path, codec) for path in paths], router)

A request is with its engine from its first token to its last. Engines that end lose their own
requests; they get none until they are back and have done the control operations that they missed.
The router counts the requests of each engine: those that were submitted here, and by its statistics
those of other clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from pagemill.engine.client import (
    READY,
    RESTARTING,
    EngineClient,
    OnLost,
    OnOutputs,
    OnStats,
    ignore_stats,
)
from pagemill.engine.group_calls import (
    Call,
    StandingCalls,
    again,
    arguments_for,
    changed_by,
    do_again,
    has_nothing_to_do,
    is_needed,
    joined,
    leave_out,
)
from pagemill.engine.messages import EngineRequest, ModelFacts
from pagemill.engine.native import NativeOutput
from pagemill.engine.outputs import EngineError
from pagemill.engine.socket_client import engine_gone
from pagemill.inputs.rendered_prompt import InputChunk
from pagemill.observe.snapshot import EngineSnapshot, SummedSnapshot

_LOGGER = logging.getLogger("pagemill.engine")
_LOOK_EVERY_S = 0.05
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
T = TypeVar("T")


class Router(Protocol):
    """The part of `_native.Router` that is used here."""

    def route(self, token_ids: Sequence[int], *, cache_salt: str) -> int | None: ...

    def add_requests(self, engine: int, count: int) -> None: ...

    def set_available(self, engine: int, available: bool) -> None: ...

    def forget(self, engine: int) -> None: ...

    @property
    def uses_prefixes(self) -> bool: ...


@dataclass(slots=True)
class _Engine:
    """One engine: `own` requests of this client, and `others` by its last statistics."""

    index: int
    client: EngineClient
    missed: dict[str, Call] | None = None
    """Calls that failed, or have not been done, by what they change; None: after its start it does
    all that stand."""
    own: int = 0
    others: int = 0
    catching_up: asyncio.Task[None] | None = None

    @property
    def failed(self) -> str:
        """An operation that it has to do before it gets requests; "": none is known."""
        return next((operation for operation, _ in self.calls if is_needed(operation)), "")

    @property
    def joined(self) -> bool:
        """Whether it gets requests."""
        return self.missed is not None and not self.failed

    @property
    def calls(self) -> Collection[Call]:
        """Those of `missed`."""
        return self.missed.values() if self.missed else ()

    @property
    def state(self) -> str:
        """See `EngineClient.states`."""
        if self.failed:
            return f"failed: {self.failed}"
        return READY if self.joined else RESTARTING

    def refusal(self) -> EngineError | None:
        """That of any request at present; None: it takes some."""
        if self.failed:
            return EngineError(
                "UNAVAILABLE",
                f"Engine {self.index} gets no requests until {self.failed} succeeds; retry.",
                retry_after_s=2,
            )
        if not self.joined:
            return engine_gone()
        try:
            self.client.room()
        except EngineError as error:
            return error
        return None


@dataclass(frozen=True, slots=True)
class _LostOutput:
    """The last output of a request whose engine has ended."""

    request_id: int
    error_code: str
    error_message: str
    error_retry_after_s: int
    finish_reason: str = "error"
    new_token_ids: Sequence[int] = ()
    logprobs: None = None
    prompt_logprobs: None = None
    turn_finished: None = None
    stop_token_id: None = None
    num_cached_tokens: int = 0
    pooled: None = None
    weight_versions: Sequence[tuple[int, str]] = ()
    routed_experts: Sequence[int] = ()
    num_evicted_tokens: int = 0
    num_draft_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0

    @property
    def kv_transfer_params(self) -> dict[str, str]:
        """None."""
        return {}


class EngineGroup:
    """An `EngineClient` of several engines, each behind one of `clients`."""

    def __init__(
        self,
        clients: Sequence[EngineClient],
        router: Router,
        lora_modules: Collection[str] = (),
    ) -> None:
        """`router` is for as many engines; `lora_modules` are the adapters that they load at their
        start."""
        self._engines = [_Engine(index, client) for index, client in enumerate(clients)]
        self._router = router
        self._engine_of: dict[int, _Engine] = {}  # unfinished request -> engine
        self._standing = StandingCalls(lora_modules)
        self._on_outputs: OnOutputs | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changing = asyncio.Lock()

    @property
    def model(self) -> ModelFacts:
        """All have the same."""
        return self._first.client.model

    @property
    def connected(self) -> bool:
        """Whether there is one engine at least."""
        return any(engine.joined for engine in self._engines)

    async def start(
        self, on_outputs: OnOutputs, on_lost: OnLost, on_stats: OnStats = ignore_stats
    ) -> None:
        """Waits for the first engine; others join when they can. `on_lost` is never called: the
        requests of an engine that ends have a last output each."""
        self._on_outputs = on_outputs
        starting = [self._begin(self._start(engine)) for engine in self._engines]
        done, _ = await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def submit(self, requests: Sequence[EngineRequest], engine: int | None = None) -> int:
        """To the engine that the router chooses by the first prompt."""
        ids = [choice.id for request in requests for choice in request.choices]
        chosen = self._route(requests[0]) if engine is None else self._pinned(engine)
        counted = 1 if engine is None else 0  # by the router already
        self._router.add_requests(chosen.index, len(ids) - counted)
        chosen.own += len(ids)
        for request_id in ids:
            self._engine_of[request_id] = chosen
        # A caller that is cancelled does not learn of a refusal, which ends the requests.
        await asyncio.shield(self._begin(self._submit(chosen, requests, ids)))
        return chosen.index

    def room(self) -> int:
        """Of all engines together."""
        refusals = [engine.refusal() for engine in self._engines]
        if None in refusals:
            pairs = zip(self._engines, refusals, strict=True)
            return sum(engine.client.room() for engine, refusal in pairs if refusal is None)
        raise _worst(refusals)

    def abort(self, request_ids: Sequence[int]) -> None:
        """Their last outputs still come."""
        for request_id in request_ids:
            engine = self._engine_of.get(request_id)
            if engine is not None:
                engine.client.abort([request_id])

    def release(self, request_id: int) -> None:
        """See `EngineClient`."""
        engine = self._engine_of.get(request_id)
        if engine is not None:
            engine.client.release(request_id)

    async def extend(self, request_id: int, chunk: InputChunk) -> None:
        """See `EngineClient`."""
        engine = self._engine_of.get(request_id, self._first)
        await engine.client.extend(request_id, chunk)

    async def call(self, operation: str, **arguments: Any) -> Any:
        """By all engines that are there; `group_calls` says how. If its effect lasts, those that
        are not there do it when they are back, and those that fail get no requests until they have
        done it; the operation goes on if the caller is cancelled.

        Raises:
            EngineError: one of them failed; the others have done it.
        """
        changed = changed_by(operation, arguments)
        if changed is not None:
            return await asyncio.shield(self._begin(self._change(changed, operation, arguments)))
        called = [engine for engine in self._engines if engine.joined]
        good, errors = await self._ask(called, operation, arguments)
        return await _answer(operation, arguments, good, errors)

    async def _change(self, changed: str, operation: str, arguments: Mapping[str, Any]) -> Any:
        async with self._changing:  # an engine that catches up meanwhile would miss it
            called = [engine for engine in self._engines if engine.missed is not None]
            sent = arguments
            if any(changed in (engine.missed or ()) for engine in called):
                sent = again(operation, arguments)  # completes one that some have done
            good, errors = await self._ask(called, operation, sent)
            if good:
                self._standing.note(operation, arguments)
                for engine in called:
                    if engine.missed is None:  # it has ended meanwhile
                        continue
                    engine.missed.pop(changed, None)
                    error = errors.get(engine.index)
                    if error is not None and not has_nothing_to_do(operation, error):
                        engine.missed[changed] = operation, arguments
                        await self._fall_behind(engine, operation, arguments, error)
        return await _answer(operation, arguments, good, errors)

    async def _fall_behind(
        self, engine: _Engine, operation: str, arguments: Mapping[str, Any], error: BaseException
    ) -> None:
        """`engine` has failed what others have done."""
        _log_failure(engine, operation, error)
        await leave_out(engine.client, operation, arguments)
        if not engine.joined:
            self._catch_up(engine)

    async def _ask(
        self, called: Sequence[_Engine], operation: str, arguments: Mapping[str, Any]
    ) -> tuple[dict[int, Any], dict[int, BaseException]]:
        """Answers and errors by the numbers of the engines; none of those that end meanwhile."""
        answers = await asyncio.gather(
            *(
                engine.client.call(operation, **arguments_for(operation, arguments, engine.index))
                for engine in called
            ),
            return_exceptions=True,
        )
        good: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}
        for engine, answer in zip(called, answers, strict=True):
            if not isinstance(answer, BaseException):
                good[engine.index] = answer
            elif engine.missed is not None:  # else it has ended meanwhile
                errors[engine.index] = answer
        return good, errors

    def stats(self) -> EngineSnapshot:
        """The sum over the engines that are there, or the last values of all."""
        present = [engine for engine in self._engines if engine.joined] or self._engines[:1]
        return cast(EngineSnapshot, SummedSnapshot([each.client.stats() for each in present]))

    def engines(self) -> Sequence[EngineSnapshot | None]:
        """See `EngineClient`."""
        return tuple(engine.client.stats() if engine.joined else None for engine in self._engines)

    def states(self) -> Sequence[str]:
        """See `EngineClient`."""
        return tuple(engine.state for engine in self._engines)

    async def close(self) -> None:
        """See `EngineClient`."""
        for engine in self._engines:
            engine.missed = None
            await engine.client.close()
        for task in self._tasks:
            task.cancel()

    @property
    def _first(self) -> _Engine:
        """One that is there, if there is any."""
        return next((engine for engine in self._engines if engine.joined), self._engines[0])

    def _route(self, request: EngineRequest) -> _Engine:
        refusals = [engine.refusal() for engine in self._engines]
        for engine, refusal in zip(self._engines, refusals, strict=True):
            self._router.set_available(engine.index, refusal is None)
        prompt = request.prompt
        is_known = self._router.uses_prefixes and not prompt.media
        index = self._router.route(
            prompt.token_ids.tolist() if is_known else (),
            cache_salt=f"{request.adapter}\0{request.cache_salt}",
        )
        if index is None:
            raise _worst(refusals)
        return self._engines[index]

    def _pinned(self, index: int) -> _Engine:
        if not 0 <= index < len(self._engines):
            raise EngineError(
                "INVALID_ARGUMENT", f"There are the engines 0 to {len(self._engines) - 1}."
            )
        engine = self._engines[index]
        refusal = None if engine.joined else engine.refusal()
        if refusal is not None:
            raise refusal
        return engine

    async def _start(self, engine: _Engine) -> None:
        try:
            await engine.client.start(
                lambda outputs: self._pass_on(engine, outputs),
                lambda error: self._lose(engine, error),
                lambda: self._on_stats(engine),
            )
        except EngineError as error:
            _log_failure(engine, "start", error)
            raise
        await self._catch_up(engine)

    def _catch_up(self, engine: _Engine) -> asyncio.Task[None]:
        """Begins to let `engine` do what it missed, if that has not begun."""
        if engine.catching_up is None or engine.catching_up.done():
            engine.catching_up = self._begin(self._keep_catching_up(engine))
        return engine.catching_up

    async def _keep_catching_up(self, engine: _Engine) -> None:
        delay_s = _FIRST_DELAY_S
        while not engine.joined:
            if not engine.client.connected:
                delay_s = _FIRST_DELAY_S
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            async with self._changing:
                await self._do_missed(engine)
            if engine.client.connected and not engine.joined:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    async def _do_missed(self, engine: _Engine) -> None:
        """Then it gets requests, unless one fails that it needs."""
        calls = self._standing.by_change() if engine.missed is None else engine.missed
        failed: dict[str, Call] = {}
        for changed, (operation, arguments) in calls.items():
            try:
                await do_again(engine.client, operation, arguments)
            except EngineError as error:
                if not engine.client.connected:
                    return  # it has ended again
                _log_failure(engine, operation, error)
                failed[changed] = operation, arguments
        if engine.client.connected:
            engine.missed = failed

    def _pass_on(self, engine: _Engine, outputs: Sequence[NativeOutput]) -> None:
        self._end(engine, [each.request_id for each in outputs if each.finish_reason is not None])
        assert self._on_outputs is not None
        self._on_outputs(outputs)

    def _end(self, engine: _Engine, request_ids: Sequence[int]) -> None:
        """Counts those as ended that had not."""
        ended = sum(self._engine_of.pop(each, None) is not None for each in request_ids)
        engine.own -= ended
        self._router.add_requests(engine.index, -ended)

    def _lose(self, engine: _Engine, error: EngineError) -> None:
        engine.missed = None
        self._router.forget(engine.index)
        self._count_others(engine, 0)
        lost = [each for each, owner in self._engine_of.items() if owner is engine]
        self._end(engine, lost)
        self._catch_up(engine)
        assert self._on_outputs is not None
        self._on_outputs(
            [_LostOutput(each, error.code, error.message, error.retry_after_s) for each in lost]
        )

    def _on_stats(self, engine: _Engine) -> None:
        stats = engine.client.stats()
        unfinished = int(stats.num_running + stats.num_waiting)  # floats across a socket
        self._count_others(engine, max(0, unfinished - engine.own))

    def _count_others(self, engine: _Engine, others: int) -> None:
        self._router.add_requests(engine.index, others - engine.others)
        engine.others = others

    async def _submit(
        self, engine: _Engine, requests: Sequence[EngineRequest], request_ids: Sequence[int]
    ) -> None:
        try:
            await engine.client.submit(requests)
        except EngineError:
            self._end(engine, request_ids)
            raise

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, EngineError):  # that is for the caller
            _LOGGER.error("a task of several engines failed", exc_info=error)


async def _answer(
    operation: str,
    arguments: Mapping[str, Any],
    good: Mapping[int, Any],
    errors: Mapping[int, BaseException],
) -> Any:
    """That of all engines: an error of one, if they should not differ."""
    for error in errors.values():
        if not (good and has_nothing_to_do(operation, error)):
            raise error
    if not good:
        raise engine_gone()
    return await asyncio.to_thread(joined, operation, arguments, good)


def _log_failure(engine: _Engine, operation: str, error: BaseException) -> None:
    level, then = logging.ERROR, "it gets no requests"
    if not is_needed(operation):
        level, then = logging.WARNING, "it lacks an adapter"
    _LOGGER.log(level, "engine %d: %s fails, %s: %s", engine.index, operation, then, error)


def _worst(refusals: Sequence[EngineError | None]) -> EngineError:
    """The refusal of engines that all refuse: a full queue before one that is not there."""
    found = [each for each in refusals if each is not None]
    return next((each for each in found if each.code == "RESOURCE_EXHAUSTED"), found[0])
