"""Loads models when requests name them, and stops those whose memory others need.

A model has a process, and one task owns it from its start to its end (`_run`). Processes start side
by side; they load one after another, each in the memory that those before have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pagemill.config import flatten
from pagemill.config.quantities import format_bytes
from pagemill.config.serve_models import HostedModelConfig, ServeModelsConfig
from pagemill.model_host.hosted_model import HostedModel, ModelState
from pagemill.model_host.process import LoadError, ModelProcess
from pagemill.model_host.reports import Ready
from pagemill.model_host.spare_process import SpareProcess
from pagemill.router.upstream import TimeLimits, Upstream
from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError

_LOGGER = logging.getLogger("pagemill.models")
_CONNECT_TIMEOUT_S = 5.0
_STOP_GRACE_S = 10.0
_KEEP_DELAY_S = 1.0
_MAX_STARTING = 16  # processes that load or wait to: each takes some 45 MB before it loads anything
_MAX_NAMES = 50  # in a message
MODEL_PROCESS = "pagemill.model_host.model_process"


class _AbandonedError(Exception):
    """The model was stopped while it was loaded, or no request waits for its memory any more."""


class ModelHost:
    """The models of a server. Event loop only."""

    def __init__(
        self,
        config: ServeModelsConfig,
        models: Sequence[HostedModelConfig],
        folder: str,
        memory_bytes: int,
        module: str = MODEL_PROCESS,
    ) -> None:
        """`folder` is private to this user, for sockets. `memory_bytes` are available on the host.
        `module` is what models' processes run."""
        limits = TimeLimits(_CONNECT_TIMEOUT_S, config.models.read_timeout)
        self.models: list[HostedModel] = []
        for i, each in enumerate(models):
            socket = f"{folder}/model-{i}"
            name = f"http://{quote(each.name, safe='')}"  # for messages
            upstream = Upstream(name, limits, config.connections.max_connections, socket)
            self.models.append(HostedModel(each, socket, upstream))
        self.waiting = 0
        """Requests that wait for a model to be loaded."""
        self._by_name = {name: each for each in self.models for name in each.config.all_names}
        self._options = config.models
        self._stop_limit_s = config.listen.shutdown_timeout + _STOP_GRACE_S
        self._usable_bytes = int(memory_bytes * config.models.memory_utilization)
        self._memory_bytes = memory_bytes
        self._spare = SpareProcess(module, is_kept=config.models.spare_process)
        self._starts = asyncio.Semaphore(_MAX_STARTING)
        self._turn = asyncio.Lock()  # to load
        self._changed = asyncio.Event()  # models became idle, or ended
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Loads the models that are kept, and keeps them loaded."""
        tasks = [self._keep(model) for model in self.models if model.config.keep]
        self._tasks = [asyncio.create_task(task) for task in tasks or [self._refill()]]

    def named(self, name: str | None, caller: Caller) -> HostedModel:
        """The model that `name` stands for; None: the first one.

        Raises:
            ApiError: 404: there is none, or not for this caller.
        """
        name = self.models[0].name if name is None else name
        model = self._by_name.get(name)
        if model is not None and caller.may_use(name):
            return model
        known = [each for each in self._by_name if caller.may_use(each)]
        listed = ", ".join(known[:_MAX_NAMES]) + (", ..." if len(known) > _MAX_NAMES else "")
        raise ApiError(
            404, f"The model `{name[:200]}` does not exist. There are: {listed or 'none'}.", "model"
        )

    @contextlib.asynccontextmanager
    async def use(self, model: HostedModel) -> AsyncGenerator[None]:
        """Loads `model` if need be; it is not stopped while the context lasts.

        Raises:
            ApiError: 503: it cannot be loaded, or not in time.
        """
        model.users += 1
        if model.idle_timer is not None:
            model.idle_timer.cancel()
        try:
            if model.state is not ModelState.LOADED:
                await self._until_loaded(model)
            yield
        finally:
            model.users -= 1
            self._rest(model)

    async def load(self, model: HostedModel) -> None:
        """Loads `model` for an operator, however short a time ago it failed.

        Raises:
            ApiError: 503, as `use`.
        """
        model.forgive()
        async with self.use(model):
            pass

    async def unload(self, model: HostedModel) -> None:
        """Stops `model` for an operator; running requests may finish.

        Raises:
            ApiError: 409: the model is kept.
        """
        if model.config.keep:
            raise ApiError(409, f"The model `{model.name}` is kept (`keep: true` in the file).")
        await self._stop(model, "operator")

    async def close(self) -> None:
        """Ends all processes, whose requests are over; one that does not end soon is killed."""
        await self._spare.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for model in self.models:
            self._begin_stop(model, "shutdown")
        runs = [model.run for model in self.models if model.run is not None]
        if runs:
            _, late = await asyncio.wait(runs, timeout=_STOP_GRACE_S)
            for run in late:
                run.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for model in self.models:
            await model.upstream.close()

    async def _keep(self, model: HostedModel) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(ApiError):
                async with self.use(model):
                    pass
            if model.run is not None:
                await asyncio.wait({model.run})
            await asyncio.sleep(max(model.retry_at - loop.time(), _KEEP_DELAY_S))

    def _rest(self, model: HostedModel) -> None:
        """Counts the idle time of `model` if it has no requests."""
        if model.users:
            return
        loop = asyncio.get_running_loop()
        model.last_used = loop.time()
        self._changed.set()
        if model.can_be_stopped and model.config.idle_timeout_s:
            model.idle_timer = loop.call_later(
                model.config.idle_timeout_s, self._begin_stop, model, "idle"
            )

    async def _until_loaded(self, model: HostedModel) -> None:
        """Raises ApiError."""
        if self.waiting >= self._options.max_waiting:
            raise ApiError(503, "Too many requests wait for models to be loaded (--max-waiting).")
        self.waiting += 1
        limit_s = self._options.wait_timeout
        try:
            async with asyncio.timeout(limit_s):
                while model.state is not ModelState.LOADED:
                    if model.state is ModelState.UNLOADING and model.run is not None:
                        await asyncio.wait({model.run})
                    else:
                        await asyncio.shield(self._loading(model))
        except TimeoutError:
            why = f": {model.waits_for}" if model.waits_for else ""
            raise ApiError(
                503, f"The model `{model.name}` is not loaded after {limit_s:g} s{why}."
            ) from None
        finally:
            self.waiting -= 1

    def _loading(self, model: HostedModel) -> asyncio.Future[None]:
        """Done when `model` is loaded; starts its process if it has none.

        Raises:
            ApiError: 503: it failed a short time ago.
        """
        if model.state is not ModelState.LOADING:
            if model.retry_at > asyncio.get_running_loop().time():
                raise model.refusal()
            model.begins(asyncio.create_task(self._run(model)))
        assert model.loading is not None
        return model.loading

    async def _run(self, model: HostedModel) -> None:
        """A process of `model`, from its start to its end."""
        began = time.monotonic()
        reason = ""
        try:
            async with self._starts:
                process = await self._start(model)
                ready = await self._load(model, process)
            if model.state is not ModelState.LOADING:
                raise _AbandonedError
            seconds = time.monotonic() - began
            model.is_loaded(ready, seconds)
            self._rest(model)  # the requests that it was loaded for may be gone
            memory = format_bytes(ready.host_bytes)
            _LOGGER.info("%s is loaded after %.2f s, in %s", model.name, seconds, memory)
            await self._refill()
            reason = await process.ended()
        except _AbandonedError:
            pass
        except (LoadError, OSError) as error:
            reason = str(error)
        finally:
            if model.process is not None:
                await model.process.close()
            reason = "" if model.state is ModelState.UNLOADING else reason
            if reason:
                _LOGGER.error("%s has failed: %s", model.name, reason)
            model.has_ended(reason)
            self._changed.set()
            await self._refill()

    async def _refill(self) -> None:
        """Has a spare process for the next model, once none is being loaded."""
        states = {model.state for model in self.models}
        if ModelState.LOADING not in states and states & {ModelState.UNLOADED, ModelState.FAILED}:
            await self._spare.refill()

    async def _start(self, model: HostedModel) -> ModelProcess:
        """Raises OSError, _AbandonedError."""
        if model.state is not ModelState.LOADING or not model.users:
            raise _AbandonedError
        Path(model.socket).unlink(missing_ok=True)
        model.process = await self._spare.take()
        await model.process.begin(_job(model))
        if model.state is not ModelState.LOADING:
            raise _AbandonedError
        return model.process

    async def _load(self, model: HostedModel, process: ModelProcess) -> Ready:
        """Waits until `process` serves.

        Raises:
            LoadError, _AbandonedError: it will not.
        """
        limit_s = self._options.load_timeout
        model.waits_for = "its process starts"
        await process.next_report(limit_s)  # it needs memory
        offered, why = -1, ""
        while True:
            model.waits_for = why or "other models are being loaded"
            async with self._turn:
                if model.state is not ModelState.LOADING:
                    raise _AbandonedError
                memory_bytes = self._offer(model)
                if self._is_full():
                    why = f"{self._options.max_models} are loaded already (--max-models)"
                elif memory_bytes > offered:
                    model.waits_for = ""
                    process.offer(memory_bytes)
                    report = await process.next_report(limit_s)
                    if isinstance(report, Ready):
                        return report
                    offered, why = memory_bytes, report.reason
                if not model.users:  # no other one is stopped for it
                    raise _AbandonedError
                num_busy = await self._stop_one(why)
            if num_busy:  # their names are not for each caller
                model.waits_for = f"{why}; busy models: {num_busy}"
                self._changed.clear()
                await self._changed.wait()

    def _is_full(self) -> bool:
        most = self._options.max_models
        return most is not None and sum(each.holds_memory for each in self.models) >= most

    async def _stop_one(self, why: str) -> int:
        """Stops the idle model that was used least recently, and returns 0; or how many there are,
        if all are busy.

        Raises:
            LoadError: `why`: no model can ever be stopped.
        """
        others = [each for each in self.models if each.holds_memory and not each.config.keep]
        if not others:
            raise LoadError(why)
        ending = [each for each in others if each.state is ModelState.UNLOADING]
        idle = ending or [each for each in others if each.can_be_stopped]
        if not idle:
            return len(others)
        await self._stop(min(idle, key=lambda each: each.last_used), "memory")
        return 0

    def _offer(self, model: HostedModel) -> int:
        """The bytes that `model` may use, before its own `memory_utilization`: so many that this
        share of them is what the other models leave, or what it is of the whole memory."""
        reserved = sum(each.reserved_bytes for each in self.models)
        share = model.config.serve.engine.cache.memory_utilization
        return min(int(max(0, self._usable_bytes - reserved) / share), self._memory_bytes)

    async def _stop(self, model: HostedModel, why: str) -> None:
        """Returns when `model` has no process."""
        self._begin_stop(model, why)
        if model.run is not None:
            await asyncio.wait({model.run})

    def _begin_stop(self, model: HostedModel, why: str) -> None:
        if model.state not in (ModelState.LOADING, ModelState.LOADED):
            return
        _LOGGER.info("%s is stopped (%s)", model.name, why)
        model.counts.stops[why] += 1
        was_loading = model.state is ModelState.LOADING
        model.state = ModelState.UNLOADING
        if model.process is None:
            return  # `_start` looks at the state
        if was_loading:
            model.process.kill()
            self._changed.set()
        else:
            model.process.ask_to_stop()
            asyncio.get_running_loop().call_later(self._stop_limit_s, model.process.kill)


def _job(model: HostedModel) -> dict[str, Any]:
    """What the model's process gets, through its standard input."""
    serve = flatten(model.config.serve)
    store = serve["response_store"] or f"{model.socket}.sqlite3"  # outlives the process
    config = {**serve, "uds": model.socket, "response_store": store}
    return {"name": model.name, "config": config}
